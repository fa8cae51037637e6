"""A convolution and what is to be done with its map before, or with its sums behind, one by one.

For algorithms that only convolve: a product, a pool's windows, what [yolo] reads or what is
repeated go through the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.backends.cuda.conv import geometry
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.ops import windows
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.heads import yolo_output
from engine.backends.cuda.ops.scaled_conv import ScaledConv2d
from engine.plan import ops

_ALIGNMENT = 256
_PACK = 16  # bytes that a thread moves at once
_LAUNCH = 4000  # cycles, as the estimates of others have them
_BYTES = 18  # a cycle, in and out of a multiprocessor


@dataclass(frozen=True)
class Unfused:
    """The convolution by `inner`."""

    inner: Algorithm

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return has_more(op) and self.inner.supports(*alone(target, op))

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return _bytes_between(target, op) + self.inner.workspace(*alone(target, op))

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        return self.inner.prepare(*alone(target, op), constants)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        target, part = alone(gpu.target, op)
        rest = gpu.workspace + _bytes_between(gpu.target, op)
        between = _between(op)
        inner = gpu.for_part(part, op, between, gpu.workspace, target=target, workspace=rest)
        if isinstance(op, ScaledConv2d):
            windows.multiply(inner, op.multiply)
        self.inner.enqueue(inner, part)
        if op.pool is not None:
            windows.max_pool(inner.storing(part.out), part.out, op.out, op.pool)
            geometry.finish(gpu, replace(op, bias=None, activation="linear"))
        if op.upsample is not None:
            windows.upsample(inner.storing(part.out), op.upsample)
        if op.yolo is not None:
            yolo_output(inner.storing(part.out), op.yolo)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Cycles, where `inner` has an estimate."""
        through = _bytes_between(target, op) * 5 / 4 / _BYTES / target.multiprocessors
        cycles: float = self.inner.estimate(*alone(target, op))  # type: ignore[attr-defined]
        return cycles + _LAUNCH + through


def has_more(op: ops.Conv2d) -> bool:
    behind = (op.pool, op.yolo, op.upsample)
    return isinstance(op, ScaledConv2d) or any(each is not None for each in behind)


def alone(target: Target, op: ops.Conv2d) -> tuple[Target, ops.Conv2d]:
    """The convolution alone, and what it is compiled for: what lies between is stored as its other
    side is.
    """
    between, like = _between(op), op.out
    if isinstance(op, ScaledConv2d):
        part, like = op.after_multiply, op.src
    else:
        part = _before(op)
    if like in target.floats:
        target = replace(target, floats=target.floats | {between})
    if between.shape.channels * target.bytes_of(between) % _PACK:
        target = replace(target, misaligned=target.misaligned | {between})
    return target, part


def _between(op: ops.Conv2d) -> ops.Tensor:
    """What one leaves for the other in the workspace."""
    if isinstance(op, ScaledConv2d):
        return op.multiply.out
    return _before(op).out


def _before(op: ops.Conv2d) -> ops.Conv2d:
    """Without what follows the convolution."""
    if op.yolo is not None:
        return op.before_yolo
    return op.before_pool if op.upsample is None else op.before_upsample


def _bytes_between(target: Target, op: ops.Conv2d) -> int:
    target, _ = alone(target, op)
    between = _between(op)
    size = target.rows(between) * between.shape.size * target.bytes_of(between)
    return -(-size // _ALIGNMENT) * _ALIGNMENT
