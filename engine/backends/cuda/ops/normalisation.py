"""Ops that normalise each pixel over its channels, and softmax over runs of values."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.ops.gpu import MOST_GRID, Arrays, Gpu, runs
from engine.plan import ops

_KINDS = {"positive": 0, "softmax": 1, "softmax_max": 2}  # `kind` of the kernel


@runs(ops.NormaliseChannels)
def normalise_channels(gpu: Gpu, op: ops.NormaliseChannels) -> None:
    gpu.launch_op("normalise_channels", op, gpu.pixels(op.out), kind=_KINDS[op.kind])


_WARP = 32
_MOST_WARPS = 16  # per block, which computes one run
_HELD = 2  # values per thread in registers, as in softmax.cu; a longer run is read three times


def run_tables(lengths: tuple[int, ...], repeats: int = 1) -> Arrays:
    """Return where each run of one row begins, and its length."""
    sizes = np.tile(np.array(lengths, dtype=np.int32), repeats)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    return {"starts": starts, "lengths": sizes}


def _repeats(op: ops.Softmax) -> int:
    return op.src.shape.size // sum(op.runs)


@runs(ops.Softmax, prepare=lambda target, op, _: run_tables(op.runs, _repeats(op)))
def softmax(gpu: Gpu, op: ops.Softmax) -> None:
    runs_in_row = len(op.runs) * _repeats(op)
    blocks = min(gpu.rows(op.out) * runs_in_row, MOST_GRID)
    warps = min(-(-max(op.runs) // (_WARP * _HELD)), _MOST_WARPS)
    gpu.launch_grid(
        *("softmax", (blocks, 1, 1), _WARP * warps, gpu.arguments(op)),
        starts=gpu.array(op, "starts"),
        lengths=gpu.array(op, "lengths"),
        runs=runs_in_row,
    )
