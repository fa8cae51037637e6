"""A lower bound on the time of an op on a device, and what limits it."""

from __future__ import annotations

from collections.abc import Collection
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


def lower_bound(op: Op, batch: int, peaks: Peaks, int8: Collection[Tensor] = ()) -> Bound:
    """Return the bound of an op of a plan with these int8 tensors: Plan.scales."""
    work = operations(op) * batch * op.out.steps
    moved = _bytes(op, batch, peaks.value_bytes, int8)
    compute, memory = work * 1e3 / peak_rate(op, peaks, int8), moved * 1e3 / peaks.bytes
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


def peak_rate(op: Op, peaks: Peaks, int8: Collection[Tensor]) -> float:
    """Return the peak operations per second, of integers in a convolution of an int8 tensor."""
    return peaks.int8_operations if _is_int8(op, int8) else peaks.operations


def _is_int8(op: Op, int8: Collection[Tensor]) -> bool:
    return isinstance(op, ops.Conv2d) and op.src in int8


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


def _bytes(op: Op, batch: int, value_bytes: int, int8: Collection[Tensor]) -> int:
    """Return the number of bytes that are read or written, each counted once."""

    def moved(tensor: Tensor, values: int) -> int:
        return values * _rows(tensor, batch) * (1 if tensor in int8 else value_bytes)

    if isinstance(op, ops.Concat):
        read = sum(moved(part.src, part.count * part.src.shape.area) for part in op.parts)
    elif isinstance(op, ops.Conv2d):
        read_share = prod(
            min(1.0, size / stride) for size, stride in zip(op.kernel, op.stride, strict=True)
        )
        read = moved(op.src, ceil(read_share * op.src.shape.size))
        read += 0 if op.residual is None else moved(op.residual, op.residual.shape.size)
    else:
        read = sum(moved(each, each.shape.size) for each in op.reads)
    constants = sum(prod(each.shape) for each in op.constants)
    constants *= 1 if _is_int8(op, int8) else value_bytes
    return read + constants + moved(op.out, op.out.shape.size)


def _rows(tensor: Tensor, batch: int) -> int:
    return batch * tensor.steps


def _tiles(op: Op, batch: int) -> int:
    """Return the number of output tiles, which SMs compute in parallel."""
    if isinstance(op, ops.Conv2d):
        rows, columns = op.grid.area * _rows(op.out, batch), op.grid.channels // op.groups
        return ceil(rows / _TILE) * ceil(columns / _TILE) * op.groups
    return ceil(op.out.shape.size * _rows(op.out, batch) / _TILE**2)
