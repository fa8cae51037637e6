"""An upsampled map, in the place of the one that it repeats."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

from engine.arrays import Array
from engine.backends.cpu.conv.base import Convolution
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_GRID = "grid"


class Repeated(Convolution):
    """Runs `inner`, made for `op.before_upsample`, one sample at a time and repeats its result."""

    def __init__(self, op: ops.Conv2d, inner: Convolution, workers: Workers) -> None:
        assert op.upsample is not None
        self.stride = op.upsample.stride
        self.inner = inner
        self.workers = workers
        self.weights = inner.weights
        self.dtype = inner.weights[0].dtype
        channels, height, width = op.grid.sides
        self.shape = height, width, channels
        workers.reserve_shared(_GRID, math.prod(self.shape) * self.dtype.itemsize)

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Callable[[], None]:
        assert residual is None
        (grid,) = self.workers.carve_shared(_GRID, self.dtype, self.shape)
        convolve = [self.inner.bind(sample[None], grid[None]) for sample in src]
        steps = range(self.stride)

        def run() -> None:
            for row, convolve_sample in enumerate(convolve):
                convolve_sample()
                for y, x in product(steps, steps):
                    out[row, y :: self.stride, x :: self.stride] = grid

        return run
