"""A convolution with fused neighbours, run as one kernel for each of them.

This is for algorithms that only convolve: the scaled input, or what a pool, [yolo], an upsampling
or the addition of a larger map reads, goes through the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.backends.cuda.conv import kernel_args
from engine.backends.cuda.conv.algorithm import (
    Algorithm,
    KeepingConv2d,
    ScaledConv2d,
    adds_quarters,
)
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.elementwise import multiply
from engine.backends.cuda.ops.gpu import RUNNERS, Arrays, Gpu, Target, align
from engine.plan import ops
from engine.plan.tail import split_tail

_PACK = 16  # bytes that a thread moves at once
_LAUNCH = 4000  # cycles, on the scale of the algorithms' estimates
_BYTES = 18  # per cycle, in and out of an SM


@dataclass(frozen=True)
class Unfused(Algorithm):
    """The convolution by `inner`, the rest in kernels of its own."""

    inner: Algorithm

    @property
    def name(self) -> str:
        return self.inner.name

    def can_run(self, target: Target, op: ops.Conv2d) -> bool:
        _, rest = _split(op)
        if op.out in target.scales and len(rest) > 1:
            return False  # the ops after the first need floats
        return has_more(op) and self.inner.can_run(*alone(target, op))

    supports = can_run

    def tile(self, target: Target, op: ops.Conv2d) -> Tile | None:
        return self.inner.tile(*alone(target, op))

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return _bytes_between(target, op) + self.inner.workspace(*alone(target, op))

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        return self.inner.prepare(*alone(target, op), constants)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        target, part = alone(gpu.target, op)
        _, rest = _split(op)
        between, after = _between(op), gpu.workspace + _bytes_between(gpu.target, op)
        place = None if isinstance(op, KeepingConv2d) else gpu.workspace
        inner = gpu.for_part(part, op, between, place, target=target, workspace=after)
        if isinstance(op, ScaledConv2d):
            multiply(inner.storing(op.src), op.multiply)
        self.inner.enqueue(inner, part)
        if rest:
            first, *others = rest
            RUNNERS[type(first)].enqueue(inner.storing(part.out), replace(first, out=op.out))
            kernel_args.finish(gpu, replace(op, bias=None, tail=tuple(others)))

    def estimate(self, target: Target, op: ops.Conv2d) -> float | None:
        cycles = self.inner.estimate(*alone(target, op))
        moved = _bytes_between(target, op) * 5 / 4 / _BYTES / target.multiprocessors
        return None if cycles is None else cycles + _LAUNCH + moved


def has_more(op: ops.Conv2d) -> bool:
    """Return whether more than bias, activations and a residual is fused into the convolution."""
    return isinstance(op, ScaledConv2d) or not _can_finish(op)


def alone(target: Target, op: ops.Conv2d) -> tuple[Target, ops.Conv2d]:
    """Return the convolution alone and its target.

    The tensor in the workspace has the precision of the one that it stands in for.
    """
    between, (part, rest) = _between(op), _split(op)
    like = op.out if rest else op.src
    if like in target.floats:
        target = replace(target, floats=target.floats | {between})
    if like in target.scales:
        target = replace(target, scales={**target.scales, between: target.scales[like]})
    if between.shape.channels * target.bytes_of(between) % _PACK:
        target = replace(target, misaligned=target.misaligned | {between})
    return target, part


def _between(op: ops.Conv2d) -> ops.Tensor:
    """Return the tensor between both kernels, which lies in the workspace unless it is kept."""
    part, rest = _split(op)
    return part.out if rest else part.src


def _split(op: ops.Conv2d) -> tuple[ops.Conv2d, tuple[ops.TailOp, ...]]:
    """Return the convolution alone and what follows it: nothing if a multiplication precedes it."""
    if isinstance(op, ScaledConv2d):
        return op.after_multiply, ()
    return split_tail(op.fused if isinstance(op, KeepingConv2d) else op, _can_finish)


def _can_finish(op: ops.Conv2d) -> bool:
    others = op.pool, op.yolo, op.upsample
    return others == (None, None, None) and not adds_quarters(op)


def _bytes_between(target: Target, op: ops.Conv2d) -> int:
    if isinstance(op, KeepingConv2d):
        return 0
    target, _ = alone(target, op)
    between = _between(op)
    return align(target.rows(between) * between.shape.size * target.bytes_of(between))
