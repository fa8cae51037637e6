"""A convolution and its tail, a pool or what [yolo] puts out, one after the other.

For algorithms that cannot do more with what they compute: it goes through the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.backends.cuda import windows
from engine.backends.cuda.conv import geometry
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.gpu import Arrays, Gpu, Target
from engine.backends.cuda.heads import yolo_output
from engine.plan import ops

SUFFIX = "+tail"

_ALIGNMENT = 256
_PACK = 16  # bytes that a thread moves at once
_LAUNCH = 4000  # cycles, as the estimates of others have them
_BYTES = 18  # a cycle, in and out of a multiprocessor


@dataclass(frozen=True)
class Apart:
    """The convolution by `inner`."""

    inner: Algorithm

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return has_tail(op) and self.inner.supports(*alone(target, op))

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return _grid_bytes(target, op) + self.inner.workspace(*alone(target, op))

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        return self.inner.prepare(*alone(target, op), constants)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        target, part = alone(gpu.target, op)
        inner = gpu.aside(part, op, gpu.workspace)
        inner.target = target
        inner.workspace += _grid_bytes(gpu.target, op)
        self.inner.enqueue(inner, part)
        if op.pool is not None:
            windows.max_pool(inner.storing(part.out), part.out, op.out, op.pool)
            geometry.finish(gpu, replace(op, bias=None, activation="linear"))
        if op.yolo is not None:
            yolo_output(inner.storing(part.out), op.yolo)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Cycles, where `inner` has an estimate."""
        through = _grid_bytes(target, op) * 5 / 4 / _BYTES / target.multiprocessors
        cycles: float = self.inner.estimate(*alone(target, op))  # type: ignore[attr-defined]
        return cycles + _LAUNCH + through


def has_tail(op: ops.Conv2d) -> bool:
    return op.pool is not None or op.yolo is not None


def alone(target: Target, op: ops.Conv2d) -> tuple[Target, ops.Conv2d]:
    """The convolution alone, and what it is compiled for: its result is stored as the output is."""
    part = op.before_pool if op.yolo is None else op.before_yolo
    if op.out in target.floats:
        target = replace(target, floats=target.floats | {part.out})
    if part.out.shape.channels * target.bytes_of(part.out) % _PACK:
        target = replace(target, misaligned=target.misaligned | {part.out})
    return target, part


def _grid_bytes(target: Target, op: ops.Conv2d) -> int:
    size = target.rows(op.out) * op.grid.size * target.bytes_of(op.out)
    return -(-size // _ALIGNMENT) * _ALIGNMENT
