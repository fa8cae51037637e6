"""The least time that an op could take on a device, and what keeps it from it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Protocol, runtime_checkable

from engine.backends.base import Peaks
from engine.plan import ops
from engine.plan.ops import Op, Tensor

_START = 2e-3  # milliseconds: about what a kernel of a replayed graph needs to begin and to end
_TILE = 64  # rows and columns of a small block of a matrix product


@runtime_checkable
class Peaked(Protocol):
    """A device that knows what it could do at most."""

    def peaks(self, precision: str) -> Peaks | None: ...


@dataclass(frozen=True)
class Bound:
    """As if every byte moved once, at full speed, beside sums of products at full speed."""

    operations: int
    bytes: int
    milliseconds: float
    limit: str  # "start", "fill", "memory" or "compute"
    reason: str  # the same, for people


def bound(op: Op, batch: int, peaks: Peaks) -> Bound:
    work = operations(op) * batch * op.out.steps
    moved = _values(op, batch) * peaks.value_bytes
    compute, memory = work * 1e3 / peaks.operations, moved * 1e3 / peaks.bytes
    least = max(compute, memory)
    tiles = _tiles(op, batch)
    if least < _START:
        limit, reason = "start", f"{least * 1e3:.2f} us of work, less than a kernel needs to start"
    elif compute > memory and tiles < peaks.multiprocessors:
        size = f"{_TILE} x {_TILE}"
        limit, reason = "fill", f"{tiles} blocks of {size} for {peaks.multiprocessors} processors"
    elif compute > memory:
        limit, reason = "compute", f"{work / 1e9:.3g} GFLOP to do"
    else:
        limit, reason = "memory", f"{moved / 1e6:.3g} MB to move"
    return Bound(work, moved, least, limit, reason)


def operations(op: Op) -> int:
    """Multiplications and additions of sums of products, for one row; the rest does not count."""
    if isinstance(op, ops.Conv2d):
        return 2 * op.grid.size * prod(op.weight.shape[1:])
    if isinstance(op, ops.Chain):
        return sum(map(operations, op.links))
    if isinstance(op, ops.Deconv2d):
        return 2 * op.src.shape.size * prod(op.weight.shape[1:])
    if isinstance(op, ops.LocalConv2d | ops.MatMul):
        return 2 * prod(op.weight.shape)
    if isinstance(op, ops.Gate):
        return 2 * (prod(op.squeeze.shape) + prod(op.expand.shape))
    return 0


def _values(op: Op, batch: int) -> int:
    """Read and written, each once."""
    if isinstance(op, ops.Concat):
        read = sum(part.count * part.src.shape.area * _rows(part.src, batch) for part in op.parts)
    elif isinstance(op, ops.Conv2d):
        seen = prod(
            min(1.0, size / stride) for size, stride in zip(op.kernel, op.stride, strict=True)
        )
        read = ceil(seen * op.src.shape.size) * _rows(op.src, batch)
        read += 0 if op.residual is None else op.residual.shape.size * _rows(op.residual, batch)
    else:
        read = sum(each.shape.size * _rows(each, batch) for each in op.reads)
    constants = sum(prod(each.shape) for each in op.constants)
    return read + constants + op.out.shape.size * _rows(op.out, batch)


def _rows(tensor: Tensor, batch: int) -> int:
    return batch * tensor.steps


def _tiles(op: Op, batch: int) -> int:
    """Blocks of a matrix product that multiprocessors work on side by side."""
    if isinstance(op, ops.Conv2d):
        rows, columns = op.grid.area * _rows(op.out, batch), op.grid.channels // op.groups
        return ceil(rows / _TILE) * ceil(columns / _TILE) * op.groups
    return ceil(op.out.shape.size * _rows(op.out, batch) / _TILE**2)
