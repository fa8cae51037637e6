"""Winograd's F(4 x 4, 3 x 3): 36 products in place of 144 for each 4 x 4 tile of the grid.

sums = A' [(G weight G') * (B' cells B)] A for tiles of 6 x 6 cells that overlap by two; * is a
matrix product over channels for each of the 36 positions. The transforms are products too: the
Kronecker square of B' or A' times all tiles at once, in blocks that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.backends.cpu.conv.base import Array, Convolution, spans
from engine.backends.cpu.conv.blocks import RowBlocked, Shapes
from engine.backends.cpu.conv.pooling import pools_quads
from engine.backends.cpu.conv.window import Geometry
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_TILE = 4  # cells of the grid that one tile makes, each way
_SEEN = _TILE + 2
_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)  # smaller rounding errors than 0, 1, -1, 2, -2
_PIECE_BYTES = 1024 * 1024  # of one of the two buffers between which a block goes to and fro
_MOST_WEIGHTS = 128 * 1024  # filters * channels; more would cost more memory than they save time
_FEWEST_TILES = 24  # in a block; fewer rows of a product do not repay packing the weights


def supports(op: ops.Conv2d) -> bool:
    grid = op.grid
    covered = _tiles(grid.height) * _tiles(grid.width) * _TILE**2
    return (
        op.kernel == (3, 3)
        and op.stride == op.dilation == (1, 1)
        and op.groups == 1
        and not op.signed
        and (op.pool is None or pools_quads(op))
        and op.src.shape.channels >= 16
        and grid.channels >= 32
        and op.src.shape.channels * grid.channels <= _MOST_WEIGHTS
        and min(grid.height, grid.width) >= 2 * _TILE
        and covered <= 1.3 * grid.area
    )


def prepare(op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> Convolution:
    assert supports(op)
    return Winograd(op, weight, bias, workers)


class Winograd(RowBlocked):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        self.op = op
        self.bias = bias
        self.workers = workers
        self.dtype = weight.dtype
        from_weight, from_cells, to_sums = _transforms()
        both = np.einsum("pi,qj,ncij->pqcn", from_weight, from_weight, weight, optimize=True)
        self.weight = np.ascontiguousarray(both.reshape(_SEEN**2, *both.shape[2:]), self.dtype)
        self.from_cells = np.kron(from_cells, from_cells).astype(self.dtype)
        self.to_sums = np.kron(to_sums, to_sums).astype(self.dtype)
        self.weights = (self.weight,) if bias is None else (self.weight, bias)
        self.corners = 2 if pools_quads(op) else 1
        shape = op.out.shape
        self.across = _tiles(shape.width * self.corners)
        self.geometry = Geometry.of(op, out_width=self.across * _TILE)
        tile = _SEEN**2 * max(weight.shape[:2]) * self.dtype.itemsize
        tiles = max(_FEWEST_TILES, _PIECE_BYTES // tile)
        down = spans(_tiles(shape.height * self.corners), tiles // self.across)
        rows = _TILE // self.corners
        self.spans = [(first * rows, min(last * rows, shape.height)) for first, last in down]
        self.reserve()

    def grid_rows(self, rows: int) -> int:
        return _tiles(rows * self.corners) * _TILE

    def scratch_shapes(self, rows: int) -> Shapes:
        tiles = _tiles(rows * self.corners) * self.across
        filters, channels = self.weight.shape[2], self.weight.shape[1]
        return 2 * ((_SEEN**2 * tiles * max(filters, channels),),)

    def plan_sums(
        self, cells: Array, rows: int, *scratch: Array
    ) -> tuple[Callable[[], None], Array]:
        down, across = _tiles(rows * self.corners), self.across
        _, channels, filters = self.weight.shape
        odd, even = scratch
        y, x, item = cells.strides
        seen = as_strided(
            cells,
            (_SEEN, _SEEN, down, across, channels),
            (y, x, _TILE * y, _TILE * x, item),
            writeable=False,
        )
        tiles = _first(odd, seen.shape)
        flat_tiles = tiles.reshape(_SEEN**2, -1)
        left = _first(even, (_SEEN**2, down * across, channels))
        flat_left = left.reshape(_SEEN**2, -1)
        product = _first(odd, (_SEEN**2, down * across, filters))
        flat_product = product.reshape(_SEEN**2, -1)
        made = _first(even, (_TILE**2, down * across * filters))
        halves = made.reshape(2, 2, 2, 2, -1)  # (y, corner y, x, corner x, ...)
        pool_y, pool = halves[:, 0], halves[:, 0, :, 0]
        each = _TILE // self.corners
        sums = _first(odd, (down * each, across * each, filters))
        by_tile = sums.reshape(down, each, across, each, filters).transpose(1, 3, 0, 2, 4)
        result = pool if self.corners == 2 else made
        result = result.reshape(by_tile.shape)
        pools = self.corners == 2

        def multiply() -> None:
            np.copyto(tiles, seen)
            np.matmul(self.from_cells, flat_tiles, out=flat_left)
            np.matmul(left, self.weight, out=product)
            np.matmul(self.to_sums, flat_product, out=made)
            if pools:
                np.maximum(pool_y, halves[:, 1], out=pool_y)
                np.maximum(pool, halves[:, 0, :, 1], out=pool)
            np.copyto(by_tile, result)

        return multiply, sums


def _transforms() -> tuple[Array, Array, Array]:
    """G (6, 3), B' (6, 6) and A' (4, 6) of Toom and Cook at _POINTS and infinity."""
    points = np.array(_POINTS)
    count = len(points)
    weight, cells, sums = np.zeros((_SEEN, 3)), np.zeros((_SEEN, _SEEN)), np.zeros((_TILE, _SEEN))
    for k, point in enumerate(points):
        others = np.delete(points, k)
        weight[k] = point ** np.arange(3) / np.prod(point - others)
        cells[k, :count] = np.poly(others)[::-1]
        sums[:, k] = point ** np.arange(_TILE)
    weight[-1, -1] = sums[-1, -1] = 1
    cells[-1] = np.poly(points)[::-1]
    return weight, cells, sums


def _tiles(cells: int) -> int:
    return -(-cells // _TILE)


def _first(buffer: Array, shape: tuple[int, ...]) -> Array:
    return buffer[: math.prod(shape)].reshape(shape)
