"""Winograd's F(4 x 4, 3 x 3): 36 products in place of 144 for each 4 x 4 tile of the grid.

sums = A' [(G weight G') * (B' cells B)] A for tiles of 6 x 6 cells that overlap by two; * is a
matrix product over channels for each of the 36 positions. The transforms are products too: the
Kronecker square of B' or A' times all tiles at once, in blocks that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.backends.cpu.conv.base import Array, Convolution, spans
from engine.backends.cpu.conv.blocks import RowBlocked, Shapes
from engine.backends.cpu.conv.pooling import pools_quads
from engine.backends.cpu.conv.window import Geometry
from engine.backends.cpu.workers import Workers
from engine.plan import ops

TILE = 4  # cells of the grid that one tile makes, each way
SEEN = TILE + 2
_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)  # smaller rounding errors than 0, 1, -1, 2, -2
_PIECE_BYTES = 1024 * 1024  # of one of the two buffers between which a block goes to and fro
_MOST_WEIGHTS = 48 * 1024  # filters * channels; more are better not packed for every block


def supports(op: ops.Conv2d) -> bool:
    return is_worthwhile(op) and math.prod(op.weight.shape[:2]) <= _MOST_WEIGHTS


def is_worthwhile(op: ops.Conv2d) -> bool:
    """Whether the shape lets this algorithm win, whatever the number of weights."""
    grid = op.grid
    covered = tile_count(grid.height) * tile_count(grid.width) * TILE**2
    return (
        op.kernel == (3, 3)
        and op.stride == op.dilation == (1, 1)
        and op.groups == 1
        and not op.signed
        and (op.pool is None or pools_quads(op))
        and op.src.shape.channels >= 16
        and grid.channels >= 32
        and min(grid.height, grid.width) >= 2 * TILE
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
        self.weight, self.from_cells, self.to_sums = transformed(weight)
        self.weights = (self.weight,) if bias is None else (self.weight, bias)
        self.corners = 2 if pools_quads(op) else 1
        shape = op.out.shape
        self.across = tile_count(shape.width * self.corners)
        self.geometry = Geometry.of(op, out_width=self.across * TILE)
        tile = SEEN**2 * max(weight.shape[:2]) * self.dtype.itemsize
        tiles = _PIECE_BYTES // tile
        down = spans(tile_count(shape.height * self.corners), tiles // self.across)
        rows = TILE // self.corners
        self.spans = [(first * rows, min(last * rows, shape.height)) for first, last in down]
        self.reserve()

    def grid_rows(self, rows: int) -> int:
        return tile_count(rows * self.corners) * TILE

    def scratch_shapes(self, rows: int) -> Shapes:
        tiles = tile_count(rows * self.corners) * self.across
        filters, channels = self.weight.shape[2], self.weight.shape[1]
        return 2 * ((SEEN**2 * tiles * max(filters, channels),),)

    def plan_sums(
        self, cells: Array, rows: int, *scratch: Array
    ) -> tuple[Callable[[], None], Array]:
        down, across = tile_count(rows * self.corners), self.across
        _, channels, filters = self.weight.shape
        odd, even = scratch
        seen = tiles_of(cells, down, across)
        tiles = _first(odd, seen.shape)
        flat_tiles = tiles.reshape(SEEN**2, -1)
        left = _first(even, (SEEN**2, down * across, channels))
        flat_left = left.reshape(SEEN**2, -1)
        product = _first(odd, (SEEN**2, down * across, filters))
        flat_product = product.reshape(SEEN**2, -1)
        made = _first(even, (TILE**2, down * across * filters))
        each = TILE // self.corners
        sums = _first(odd, (down * each, across * each, filters))
        assemble = assembly(made, sums, self.corners)

        def multiply() -> None:
            np.copyto(tiles, seen)
            np.matmul(self.from_cells, flat_tiles, out=flat_left)
            np.matmul(left, self.weight, out=product)
            np.matmul(self.to_sums, flat_product, out=made)
            assemble()

        return multiply, sums


def transformed(weight: Array) -> tuple[Array, Array, Array]:
    """G weight G' as (position, c, n), and the Kronecker squares of B' and A'."""
    from_weight, from_cells, to_sums = _transforms()
    both = np.einsum("pi,qj,ncij->pqcn", from_weight, from_weight, weight, optimize=True)
    return (
        np.ascontiguousarray(both.reshape(SEEN**2, *both.shape[2:]), weight.dtype),
        np.kron(from_cells, from_cells).astype(weight.dtype),
        np.kron(to_sums, to_sums).astype(weight.dtype),
    )


def tiles_of(cells: Array, down: int, across: int) -> Array:
    """View padded cells (y, x, c) as overlapping tiles (i, j, down, across, c)."""
    y, x, item = cells.strides
    shape = SEEN, SEEN, down, across, cells.shape[-1]
    return as_strided(cells, shape, (y, x, TILE * y, TILE * x, item), writeable=False)


def assembly(made: Array, sums: Array, corners: int) -> Callable[[], None]:
    """Return the function that lays out tiles (position, values) as a map (y, x, filter).

    With two corners the map is that of the 2 x 2 / 2 pool.
    """
    each = TILE // corners
    height, width, filters = sums.shape
    by_tile = sums.reshape(height // each, each, width // each, each, filters)
    by_tile = by_tile.transpose(1, 3, 0, 2, 4)
    if corners == 1:
        return partial(np.copyto, by_tile, made.reshape(by_tile.shape))
    halves = made.reshape(2, 2, 2, 2, -1)  # (y, corner y, x, corner x, values)
    tall, pooled = halves[:, 0], halves[:, 0, :, 0]
    result = pooled.reshape(by_tile.shape)

    def pool() -> None:
        np.maximum(tall, halves[:, 1], out=tall)
        np.maximum(pooled, halves[:, 0, :, 1], out=pooled)
        np.copyto(by_tile, result)

    return pool


def _transforms() -> tuple[Array, Array, Array]:
    """G (6, 3), B' (6, 6) and A' (4, 6) of Toom and Cook at _POINTS and infinity."""
    points = np.array(_POINTS)
    count = len(points)
    weight, cells, sums = np.zeros((SEEN, 3)), np.zeros((SEEN, SEEN)), np.zeros((TILE, SEEN))
    for k, point in enumerate(points):
        others = np.delete(points, k)
        weight[k] = point ** np.arange(3) / np.prod(point - others)
        cells[k, :count] = np.poly(others)[::-1]
        sums[:, k] = point ** np.arange(TILE)
    weight[-1, -1] = sums[-1, -1] = 1
    cells[-1] = np.poly(points)[::-1]
    return weight, cells, sums


def tile_count(cells: int) -> int:
    return -(-cells // TILE)


def _first(buffer: Array, shape: tuple[int, ...]) -> Array:
    return buffer[: math.prod(shape)].reshape(shape)
