"""Pools that overlap, are padded, or may not pass the activation: after the whole grid."""

from __future__ import annotations

import math
from collections.abc import Callable

from engine.arrays import Array
from engine.backends.cpu.conv.base import Convolution
from engine.backends.cpu.conv.epilogue import after_pool
from engine.backends.cpu.windows import pool_max
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_GRID = "grid"


class Pooled(Convolution):
    """Runs `inner`, made for `op.before_pool`, one sample at a time and pools its result."""

    def __init__(self, op: ops.Conv2d, inner: Convolution, workers: Workers) -> None:
        assert op.pool is not None
        self.op = op
        self.window = op.pool
        self.inner = inner
        self.workers = workers
        self.weights = inner.weights
        self.dtype = inner.weights[0].dtype
        self.shapes = (
            (op.grid.height, op.grid.width, op.grid.channels),
            (
                op.out.shape.height,
                op.out.shape.width,
                op.out.shape.channels,
            ),
        )
        sizes = (math.prod(shape) * self.dtype.itemsize for shape in (*self.shapes, self.shapes[1]))
        workers.reserve_shared(_GRID, *sizes)

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Callable[[], None]:
        shapes = (*self.shapes, self.shapes[1])
        grid, pooled, spare = self.workers.carve_shared(_GRID, self.dtype, *shapes)
        convolve = [self.inner.bind(sample[None], grid[None]) for sample in src]
        finish = after_pool(self.op)

        def run() -> None:
            for row, convolve_sample in enumerate(convolve):
                convolve_sample()
                pool_max(grid[None], pooled[None], self.window)
                finish(pooled, spare, out[row], None if residual is None else residual[row])

        return run
