"""Winograd's F(4 x 4, 3 x 3): 36 multiplications, not 144, for each 4 x 4 tile of the grid.

sums = A' [(G weight G') * (B' cells B)] A for tiles of 6 x 6 cells that overlap by two, where * is
a matrix product over channels for each of the 36 positions. The transforms are matrix products too:
B' or A' times all tiles of a block, along one axis and then the other, while it is in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.conv.base import spans, start_of
from engine.backends.cpu.conv.gather import Geometry
from engine.backends.cpu.conv.row_blocks import RowBlocked, Shapes
from engine.backends.cpu.conv.tiles import FOUR, columns_first, rows_first
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_PIECE_BYTES = 1024 * 1024  # of each of the two buffers that a block alternates between
_MOST_WEIGHTS = 48 * 1024  # filters * channels; BLAS packs them again for every block
_SMALLEST_SIDE = 7  # of the grid
_FEWEST_PRODUCTS = 8  # for each value of a tile that is transformed


def supports(op: ops.Conv2d) -> bool:
    return is_worthwhile(op) and math.prod(op.weight.shape[:2]) <= _MOST_WEIGHTS


def is_worthwhile(op: ops.Conv2d) -> bool:
    """Return whether the shape suits Winograd, regardless of tiles and the number of weights."""
    grid, channels, filters = op.grid, op.src.shape.channels, op.grid.channels
    return (
        op.kernel == (3, 3)
        and op.stride == op.dilation == (1, 1)
        and op.groups == 1
        and not op.signed
        and (op.pool is None or op.pools_quads)
        and channels * filters > (channels + filters) * _FEWEST_PRODUCTS
        and min(grid.height, grid.width) >= _SMALLEST_SIDE
    )


class Winograd(RowBlocked):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        super().__init__(op, weight, bias, workers)
        self.weight = FOUR.transformed(weight)
        self.from_cells, self.to_sums = FOUR.transforms(self.dtype)
        self.weights = (self.weight,) if bias is None else (self.weight, bias)
        shape = op.out.shape
        self.across = FOUR.count(shape.width * self.corners)
        self.geometry = Geometry(op, out_width=self.across * FOUR.side)
        tile = FOUR.seen**2 * max(weight.shape[:2]) * self.dtype.itemsize
        tiles = _PIECE_BYTES // tile
        down = spans(FOUR.count(shape.height * self.corners), tiles // self.across)
        rows = FOUR.side // self.corners
        self.spans = [(first * rows, min(last * rows, shape.height)) for first, last in down]
        self.reserve()

    def grid_rows(self, rows: int) -> int:
        return FOUR.count(rows * self.corners) * FOUR.side

    def scratch_shapes(self, rows: int) -> Shapes:
        tiles = FOUR.count(rows * self.corners) * self.across
        filters, channels = self.weight.shape[2], self.weight.shape[1]
        return 2 * ((FOUR.seen**2 * tiles * max(filters, channels),),)

    def plan_sums(
        self, cells: Array, rows: int, *scratch: Array
    ) -> tuple[Callable[[], None], Array]:
        down, across = FOUR.count(rows * self.corners), self.across
        _, channels, filters = self.weight.shape
        side, seen, count = FOUR.side, FOUR.seen, down * across
        odd, even = scratch
        overlapping = FOUR.tiles_of(cells, down, across)
        tiles = start_of(odd, overlapping.shape)
        half_way = start_of(even, (seen, seen, count * channels))
        left = start_of(odd, (seen**2, count, channels))
        product = start_of(even, (seen**2, count, filters))
        narrowed = start_of(odd, (seen, side, count * filters))
        made = start_of(even, (side, side, count * filters))
        each = side // self.corners
        sums = start_of(odd, (down * each, across * each, filters))
        assemble = FOUR.assembly(made, sums, self.corners)
        flat_tiles, flat_left = (array.reshape(half_way.shape) for array in (tiles, left))
        flat_product = product.reshape(seen, seen, -1)

        def multiply() -> None:
            np.copyto(tiles, overlapping)
            rows_first(self.from_cells, flat_tiles, half_way, flat_left)
            np.matmul(left, self.weight, out=product)
            columns_first(self.to_sums, flat_product, narrowed, made)
            assemble()

        return multiply, sums


prepare = Winograd
