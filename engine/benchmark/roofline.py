"""A lower bound on the time of an op on a device, and what limits it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Protocol, runtime_checkable

from engine.backends.base import Peaks
from engine.plan import ops
from engine.plan.ops import Op, Tensor

_LAUNCH_MS = 2e-3  # about the launch overhead of a kernel in a replayed CUDA graph
_TILE = 64  # rows and columns of a small output tile


@runtime_checkable
class HasPeaks(Protocol):
    """A device whose theoretical peaks are known."""

    def peaks(self, precision: str) -> Peaks | None: ...


@dataclass(frozen=True)
class Bound:
    """A lower bound: arithmetic and memory traffic overlap, and both run at peak speed.

    Each byte is moved once.
    """

    operations: int
    bytes: int
    milliseconds: float
    limit: str  # "launch", "tiles", "memory" or "compute"
    reason: str  # the same in words


def lower_bound(op: Op, batch: int, peaks: Peaks) -> Bound:
    work = operations(op) * batch * op.out.steps
    moved = _values(op, batch) * peaks.value_bytes
    compute, memory = work * 1e3 / peaks.operations, moved * 1e3 / peaks.bytes
    milliseconds = max(compute, memory)
    tiles = _tiles(op, batch)
    if milliseconds < _LAUNCH_MS:
        work_us = milliseconds * 1e3
        limit, reason = "launch", f"{work_us:.2f} us of work, less than the launch overhead"
    elif compute > memory and tiles < peaks.multiprocessors:
        size = f"{_TILE} x {_TILE}"
        limit, reason = "tiles", f"{tiles} tiles of {size} for {peaks.multiprocessors} SMs"
    elif compute > memory:
        limit, reason = "compute", f"{work / 1e9:.3g} GFLOP to compute"
    else:
        limit, reason = "memory", f"{moved / 1e6:.3g} MB to move"
    return Bound(work, moved, milliseconds, limit, reason)


def operations(op: Op) -> int:
    """Return the multiplications and additions of matrix products and convolutions for one row."""
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
    """Return the number of values that are read or written, each counted once."""
    if isinstance(op, ops.Concat):
        read = sum(part.count * part.src.shape.area * _rows(part.src, batch) for part in op.parts)
    elif isinstance(op, ops.Conv2d):
        read_share = prod(
            min(1.0, size / stride) for size, stride in zip(op.kernel, op.stride, strict=True)
        )
        read = ceil(read_share * op.src.shape.size) * _rows(op.src, batch)
        read += 0 if op.residual is None else op.residual.shape.size * _rows(op.residual, batch)
    else:
        read = sum(each.shape.size * _rows(each, batch) for each in op.reads)
    constants = sum(prod(each.shape) for each in op.constants)
    return read + constants + op.out.shape.size * _rows(op.out, batch)


def _rows(tensor: Tensor, batch: int) -> int:
    return batch * tensor.steps


def _tiles(op: Op, batch: int) -> int:
    """Return the number of output tiles, which SMs compute in parallel."""
    if isinstance(op, ops.Conv2d):
        rows, columns = op.grid.area * _rows(op.out, batch), op.grid.channels // op.groups
        return ceil(rows / _TILE) * ceil(columns / _TILE) * op.groups
    return ceil(op.out.shape.size * _rows(op.out, batch) / _TILE**2)
