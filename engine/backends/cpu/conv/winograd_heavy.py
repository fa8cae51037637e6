"""Winograd's F(4 x 4, 3 x 3) under heavy weights: every weight is read once for the whole map.

Three stages, each shared out among the workers: tile rows are transformed, positions multiplied,
tile rows transformed back and finished.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from engine.backends.cpu.conv.base import Array, Convolution, spans
from engine.backends.cpu.conv.epilogue import epilogue
from engine.backends.cpu.conv.pooling import pools_quads
from engine.backends.cpu.conv.window import Geometry, PaddedRows
from engine.backends.cpu.conv.winograd import (
    SEEN,
    TILE,
    assembly,
    is_worthwhile,
    tile_count,
    tiles_of,
    transformed,
)
from engine.backends.cpu.workers import Task, Workers
from engine.plan import ops

_TILES = "tiles"
_PRODUCTS = "products"
_MOST_WEIGHTS = 256 * 1024  # filters * channels; four times their memory is held
_MOST_TILES = 256
_ROW_PIECES = 4
_POSITIONS = 6  # multiplied by one piece


def supports(op: ops.Conv2d) -> bool:
    tiles = tile_count(op.grid.height) * tile_count(op.grid.width)
    return (
        is_worthwhile(op)
        and tiles <= _MOST_TILES
        and math.prod(op.weight.shape[:2]) <= _MOST_WEIGHTS
    )


def prepare(op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> Convolution:
    assert supports(op)
    return WinogradHeavy(op, weight, bias, workers)


class WinogradHeavy(Convolution):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        self.op = op
        self.bias = bias
        self.workers = workers
        self.dtype = weight.dtype
        self.weight, self.from_cells, self.to_sums = transformed(weight)
        self.weights = (self.weight,) if bias is None else (self.weight, bias)
        self.corners = 2 if pools_quads(op) else 1
        self.rows = TILE // self.corners  # of the output, in one tile
        filters, channels = weight.shape[:2]
        shape = op.out.shape
        self.across = tile_count(shape.width * self.corners)
        self.down = tile_count(shape.height * self.corners)
        self.geometry = Geometry.of(op, out_width=self.across * TILE)
        self.row_spans = spans(self.down, -(-self.down // _ROW_PIECES))
        self.positions = [slice(*span) for span in spans(SEEN**2, _POSITIONS)]
        self.left_shape = SEEN**2, self.down * self.across, channels
        self.product_shape = SEEN**2, self.down * self.across, filters
        for name, each in ((_TILES, self.left_shape), (_PRODUCTS, self.product_shape)):
            workers.reserve_shared(name, math.prod(each) * self.dtype.itemsize)
        most = max(last - first for first, last in self.row_spans)
        for shapes in (self._gather_shapes(most), self._finish_shapes(most)):
            workers.reserve(*(math.prod(each) * self.dtype.itemsize for each in shapes))

    def _gather_shapes(self, down: int) -> tuple[tuple[int, ...], ...]:
        """Padded cells and their tiles."""
        channels = self.left_shape[2]
        padded = self.geometry.padded_shape(down * TILE)
        return padded, (SEEN, SEEN, down, self.across, channels)

    def _finish_shapes(self, down: int) -> tuple[tuple[int, ...], ...]:
        """Finished tiles, the same as a map, and spare memory like it."""
        filters = self.product_shape[2]
        sums = (down * self.rows, self.across * self.rows, filters)
        return (TILE**2, down * self.across * filters), sums, sums

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Callable[[], None]:
        (left,) = self.workers.carve_shared(_TILES, self.dtype, self.left_shape)
        (product,) = self.workers.carve_shared(_PRODUCTS, self.dtype, self.product_shape)

        def multiply(_: int, number: int) -> None:
            part = self.positions[number]
            np.matmul(left[part], self.weight[part], out=product[part])

        samples = [
            (
                self._gather(sample, left),
                self._finish(product, out[row], None if residual is None else residual[row]),
            )
            for row, sample in enumerate(src)
        ]

        def run() -> None:
            for gather, finish in samples:
                self.workers.run(gather, len(self.row_spans))
                self.workers.run(multiply, len(self.positions))
                self.workers.run(finish, len(self.row_spans))

        return run

    def _gather(self, sample: Array, left: Array) -> Task:
        blocks = [
            PaddedRows(self.geometry, sample, (first * TILE, last * TILE))
            for first, last in self.row_spans
        ]
        flat = left.reshape(SEEN**2, -1)
        values = self.across * left.shape[2]  # of a row of tiles

        def gather(worker: int, number: int) -> None:
            block, (first, last) = blocks[number], self.row_spans[number]
            shapes = self._gather_shapes(last - first)
            padded, tiles = self.workers.carve(worker, self.dtype, *shapes)
            for border in block.borders(padded):
                border.fill(0)
            np.copyto(block.inner(padded), block.source)
            np.copyto(tiles, tiles_of(block.view(padded), last - first, self.across))
            into = flat[:, first * values : last * values]
            np.matmul(self.from_cells, tiles.reshape(SEEN**2, -1), out=into)

        return gather

    def _finish(self, product: Array, out: Array, residual: Array | None) -> Task:
        apply = epilogue(self.op, self.bias)
        flat = product.reshape(SEEN**2, -1)
        values = self.across * product.shape[2]
        width = self.op.out.shape.width

        def finish(worker: int, number: int) -> None:
            first, last = self.row_spans[number]
            shapes = self._finish_shapes(last - first)
            made, sums, spare = self.workers.carve(worker, self.dtype, *shapes)
            np.matmul(self.to_sums, flat[:, first * values : last * values], out=made)
            assembly(made, sums, self.corners)()
            rows = slice(first * self.rows, last * self.rows)
            to = out[rows]
            more = None if residual is None else residual[rows]
            apply(sums[: len(to), :width], spare[: len(to), :width], to, more)

        return finish
