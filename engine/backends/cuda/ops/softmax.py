"""Softmax over runs of consecutive values."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.registry import Arrays, runs
from engine.backends.cuda.ops.target import Target
from engine.plan import ops

_THREADS = 128
_MOST_BLOCKS = 65535


def run_tables(lengths: tuple[int, ...], repeats: int = 1) -> Arrays:
    """Return where each run of one row begins, and its length."""
    sizes = np.tile(np.array(lengths, dtype=np.int32), repeats)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    return {"starts": starts, "lengths": sizes}


def _tables(target: Target, op: ops.Softmax, constants: Arrays) -> Arrays:
    return run_tables(op.runs, _repeats(op))


def _repeats(op: ops.Softmax) -> int:
    return op.src.shape.size // sum(op.runs)


@runs(ops.Softmax, prepare=_tables)
def softmax(gpu: Gpu, op: ops.Softmax) -> None:
    runs_in_row = len(op.runs) * _repeats(op)
    arguments = gpu.arguments(
        "softmax",
        op.src,
        op.out,
        starts=gpu.array(op, "starts"),
        lengths=gpu.array(op, "lengths"),
        runs=runs_in_row,
        channels=op.src.shape.channels,
        area=op.src.shape.area,
        out_channels=op.out.shape.channels,
        out_area=op.out.shape.area,
        temperature=float(op.temperature),
    )
    blocks = min(gpu.rows(op.out) * runs_in_row, _MOST_BLOCKS)
    gpu.launch_grid("softmax", (blocks, 1, 1), _THREADS, **arguments)
