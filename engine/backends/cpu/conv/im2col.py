"""im2col + GEMM, for every convolution: a block of rows is unfolded and multiplied by the weights.

columns[(y,x), (i,j,c)] = src[y*stride + i*dilation - padding, ..., c];  sums = columns @ weight.
With a 2 x 2 pool, columns are grouped by the corner of the 2 x 2 cells: the pool is a maximum of
four equal blocks, and bias and activation are applied to a quarter of the values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.conv.base import PIECE_BYTES, spans
from engine.backends.cpu.conv.gather import Geometry, windows
from engine.backends.cpu.conv.row_blocks import RowBlocked, Shapes
from engine.backends.cpu.workers import Workers
from engine.plan import ops


def supports(op: ops.Conv2d) -> bool:
    return op.pool is None or op.pools_quads


class Im2col(RowBlocked):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        super().__init__(op, weight, bias, workers)
        self.weight = as_columns(weight, op.groups)
        self.weights = (self.weight,) if bias is None else (self.weight, bias)
        shape = op.out.shape
        self.geometry = Geometry(op, out_width=shape.width * self.corners)
        row = shape.width * self.corners**2 * weight[0].size * op.groups
        self.spans = spans(shape.height, PIECE_BYTES // (row * self.dtype.itemsize))
        self.reserve()

    def grid_rows(self, rows: int) -> int:
        return rows * self.corners

    def scratch_shapes(self, rows: int) -> Shapes:
        """Return the shapes of columns and product."""
        shape, groups = self.op.out.shape, self.op.groups
        pixels = rows * shape.width * self.corners**2
        return (groups, pixels, self.weight.shape[-2]), (pixels, shape.channels)

    def plan_sums(
        self, cells: Array, rows: int, *scratch: Array
    ) -> tuple[Callable[[], None], Array]:
        columns, product = scratch
        groups, shape = self.op.groups, self.op.out.shape
        seen = windows(self.geometry, cells, self.grid_rows(rows), quads=self.corners == 2)
        by_group = np.moveaxis(seen.reshape(*seen.shape[:-1], groups, -1), -2, 0)
        unfolded = columns.reshape(by_group.shape)
        left = columns if groups > 1 else columns[0]
        into = product
        if groups > 1:
            into = product.reshape(len(product), groups, -1).transpose(1, 0, 2)
        corners = product.reshape(-1, rows, shape.width, shape.channels)
        pairs, first, second = corners[:2], corners[0], corners[1] if self.corners == 2 else None

        def multiply() -> None:
            np.copyto(unfolded, by_group)
            np.matmul(left, self.weight, out=into)
            if second is not None:
                np.maximum(pairs, corners[2:], out=pairs)
                np.maximum(first, second, out=first)

        return multiply, first


prepare = Im2col


def as_columns(weight: Array, groups: int = 1) -> Array:
    """Return (filters, c, i, j) as (groups, i*j*c, filters / groups), or 2-D for one group."""
    filters = len(weight)
    columns = weight.transpose(0, 2, 3, 1).reshape(groups, filters // groups, -1)
    packed = np.ascontiguousarray(columns.transpose(0, 2, 1))
    return packed if groups > 1 else packed[0]
