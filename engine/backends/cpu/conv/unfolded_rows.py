"""Wide maps with few channels: each row is unfolded once for all windows that contain it.

unfolded[x, y, (j,c)] = cells[y, x*stride + j, c], so the rows of a window are contiguous: they are
unfolded[x, y*stride : y*stride + i], and a row of windows is a strided matrix that BLAS reads in
place. With few channels, the copies of im2col would cost more than the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.arrays import Array
from engine.backends.cpu.conv.base import PIECE_BYTES, spans
from engine.backends.cpu.conv.gather import Geometry
from engine.backends.cpu.conv.im2col import as_columns
from engine.backends.cpu.conv.row_blocks import RowBlocked, Shapes
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_FEWEST_PIXELS = 24  # of a product, which is one row of the output and one corner of its pool
_MOST_WEIGHTS = 16 * 1024  # BLAS packs them for every product


def supports(op: ops.Conv2d) -> bool:
    return (
        op.groups == 1
        and op.kernel[0] > op.stride[0]
        and op.dilation[0] == 1
        and math.prod(op.weight.shape) <= _MOST_WEIGHTS
        and op.out.shape.width >= _FEWEST_PIXELS
        and (op.pool is None or op.pools_quads)
    )


class UnfoldedRows(RowBlocked):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        super().__init__(op, weight, bias, workers)
        self.weight = as_columns(weight)
        self.weights = (self.weight,) if bias is None else (self.weight, bias)
        shape = op.out.shape
        self.geometry = Geometry(op, out_width=shape.width * self.corners)
        self.run = op.kernel[1] * op.src.shape.channels  # values of one row of a window
        row = shape.width * self.corners**2 * (op.stride[0] * self.run + shape.channels)
        self.spans = spans(shape.height, PIECE_BYTES // (row * self.dtype.itemsize))
        self.reserve()

    def grid_rows(self, rows: int) -> int:
        return rows * self.corners

    def scratch_shapes(self, rows: int) -> Shapes:
        """Return the shapes of unfolded rows and sums."""
        geometry, corners = self.geometry, self.corners
        tall = geometry.padded_rows(self.grid_rows(rows))
        width, channels = self.op.out.shape.width, self.op.out.shape.channels
        return (geometry.out_width, tall, self.run), (corners, corners, rows, width, channels)

    def plan_sums(
        self, cells: Array, rows: int, *scratch: Array
    ) -> tuple[Callable[[], None], Array]:
        unfolded, sums = scratch
        corners, width = self.corners, self.op.out.shape.width
        seen = _unfolding(self.geometry, cells)
        x, y, item = unfolded.strides
        y *= self.op.stride[0]
        # one matrix (pixel, i*j*c) for each corner of the pool and row of windows
        shape = corners, corners, rows, width, len(self.weight)
        left = as_strided(unfolded, shape, (y, x, corners * y, corners * x, item), writeable=False)
        to = unfolded.reshape(seen.shape)

        def multiply() -> None:
            np.copyto(to, seen)
            np.matmul(left, self.weight, out=sums)
            if corners == 2:
                np.maximum(sums[0], sums[1], out=sums[0])
                np.maximum(sums[0, 0], sums[0, 1], out=sums[0, 0])

        return multiply, sums[0, 0]


prepare = UnfoldedRows


def _unfolding(geometry: Geometry, cells: Array) -> Array:
    """View padded cells (y, x, c) as (x, y, j, c), the rows of all windows."""
    step_y, step_x, step_c = cells.strides
    op = geometry.op
    shape = geometry.out_width, len(cells), op.kernel[1], geometry.channels
    steps = step_x * op.stride[1], step_y, step_x * op.dilation[1], step_c
    return as_strided(cells, shape, steps, writeable=False)
