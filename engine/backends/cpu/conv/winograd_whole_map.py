"""Winograd's algorithm over the whole map at once, for many weights: each is read only once.

It has three stages, each divided among the workers: transform rows of tiles, multiply by positions
or filters, and transform rows of tiles back, with the epilogue.
"""

from __future__ import annotations

import math

import numpy as np

from engine.arrays import Array
from engine.backends.cpu import blas
from engine.backends.cpu.conv.base import FloatConvolution, spans
from engine.backends.cpu.conv.epilogue import epilogue
from engine.backends.cpu.conv.gather import Geometry, PaddedRows
from engine.backends.cpu.conv.tiles import FOUR, TWO, Tiling, columns_first, rows_first
from engine.backends.cpu.conv.winograd import is_worthwhile
from engine.backends.cpu.storage import Kernel
from engine.backends.cpu.workers import Task, Workers
from engine.plan import ops

_TILES = "tiles"
_PRODUCTS = "products"
_FEWEST_WEIGHTS = 32 * 1024  # filters * channels
_MOST_WEIGHTS = 9 * 1024 * 1024  # transformed, which are up to four times as many
_MOST_TILES = 256
_ROW_PIECES = 2  # with more, threads wait longer for the GIL than they transform
_NARROW = (64, 32)  # filters


def supports(op: ops.Conv2d) -> bool:
    return _tiling(op) is not None


def _tiling(op: ops.Conv2d) -> Tiling | None:
    """Return the largest tiles that suit the convolution, or None."""
    weights, grid = math.prod(op.weight.shape[:2]), op.grid
    if weights < _FEWEST_WEIGHTS or not is_worthwhile(op):
        return None
    for tiling in (FOUR, TWO):
        tiles = tiling.count(grid.height) * tiling.count(grid.width)
        light = weights * tiling.seen**2 <= _MOST_WEIGHTS
        if tiles <= _MOST_TILES and light:
            return tiling
    return None


class WinogradWholeMap(FloatConvolution):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        super().__init__(op, weight, bias, workers)
        tiling = _tiling(op)
        assert tiling is not None
        self.tiling = tiling
        self.from_cells, self.to_sums = tiling.transforms(self.dtype)
        self.rows = self.tiling.side // self.corners  # of the output, in one tile
        filters, channels = weight.shape[:2]
        shape = op.out.shape
        self.across = tiling.count(shape.width * self.corners)
        self.down = tiling.count(shape.height * self.corners)
        self.geometry = Geometry(op, out_width=self.across * self.tiling.side)
        self.row_spans = spans(self.down, -(-self.down // _ROW_PIECES))
        self.left_shape = self.tiling.seen**2, self.down * self.across, channels
        self.product_shape = self.tiling.seen**2, self.down * self.across, filters
        self.filters = [slice(*span) for span in spans(filters, self._filters_together())]
        self.parts = tuple(tiling.transformed(weight[part]) for part in self.filters)
        self.weights = self.parts if bias is None else (*self.parts, bias)
        for name, each in ((_TILES, self.left_shape), (_PRODUCTS, self.product_shape)):
            workers.reserve_shared(name, math.prod(each) * self.dtype.itemsize)
        most = max(last - first for first, last in self.row_spans)
        for shapes in (self._gather_shapes(most), self._finish_shapes(most)):
            workers.reserve(*(math.prod(each) * self.dtype.itemsize for each in shapes))

    def _filters_together(self) -> int:
        """Return a number small enough for the BLAS to multiply without packing, or all."""
        _, tiles, channels = self.left_shape
        most = blas.unpacked_products() // (tiles * channels)
        return next((few for few in _NARROW if few <= most), self.op.out.shape.channels)

    def _gather_shapes(self, down: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of padded cells, tiles, and tiles transformed along one axis."""
        channels, seen = self.left_shape[2], self.tiling.seen
        padded = self.geometry.padded_shape(down * self.tiling.side)
        return (
            padded,
            (seen, seen, down, self.across, channels),
            (seen, seen, down * self.across * channels),
        )

    def _finish_shapes(self, down: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of tiles transformed along one axis and both, and of two maps."""
        filters, side = self.product_shape[2], self.tiling.side
        values = down * self.across * filters
        sums = (down * self.rows, self.across * self.rows, filters)
        return (self.tiling.seen, side, values), (side, side, values), sums, sums

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Kernel:
        (left,) = self.workers.carve_shared(_TILES, self.dtype, self.left_shape)
        (product,) = self.workers.carve_shared(_PRODUCTS, self.dtype, self.product_shape)
        together = self.tiling.seen ** (2 if len(self.parts) > 1 else 1)
        pieces = [
            (slice(*span), filters, weight)
            for span in spans(self.tiling.seen**2, together)
            for filters, weight in zip(self.filters, self.parts, strict=True)
        ]

        def multiply(_: int, number: int) -> None:
            at, filters, weight = pieces[number]
            np.matmul(left[at], weight[at], out=product[at, :, filters])

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
                self.workers.run(multiply, len(pieces))
                self.workers.run(finish, len(self.row_spans))

        return run

    def _gather(self, sample: Array, left: Array) -> Task:
        blocks = [
            PaddedRows(self.geometry, sample, (first * self.tiling.side, last * self.tiling.side))
            for first, last in self.row_spans
        ]
        flat = left.reshape(self.tiling.seen, self.tiling.seen, -1)
        values = self.across * left.shape[2]  # of a row of tiles

        def gather(worker: int, number: int) -> None:
            block, (first, last) = blocks[number], self.row_spans[number]
            shapes = self._gather_shapes(last - first)
            padded, tiles, half_way = self.workers.carve(worker, self.dtype, *shapes)
            for border in block.borders(padded):
                border.fill(0)
            np.copyto(block.inner(padded), block.source)
            np.copyto(tiles, self.tiling.tiles_of(block.view(padded), last - first, self.across))
            into = flat[..., first * values : last * values]
            rows_first(self.from_cells, tiles.reshape(half_way.shape), half_way, into)

        return gather

    def _finish(self, product: Array, out: Array, residual: Array | None) -> Task:
        apply = epilogue(self.op, self.bias)
        flat = product.reshape(self.tiling.seen, self.tiling.seen, -1)
        values = self.across * product.shape[2]
        width = self.op.out.shape.width

        def finish(worker: int, number: int) -> None:
            first, last = self.row_spans[number]
            shapes = self._finish_shapes(last - first)
            narrowed, made, sums, spare = self.workers.carve(worker, self.dtype, *shapes)
            products = flat[..., first * values : last * values]
            columns_first(self.to_sums, products, narrowed, made)
            self.tiling.assembly(made, sums, self.corners)()
            rows = slice(first * self.rows, last * self.rows)
            to = out[rows]
            more = None if residual is None else residual[rows]
            apply(sums[: len(to), :width], spare[: len(to), :width], to, more)

        return finish


prepare = WinogradWholeMap
