"""Convolution of any kind: a block of rows is unfolded into columns, multiplied, finished, stored.

columns[(y,x), (i,j,c)] = src[y*stride + i*dilation - padding, ..., c];  out = columns @ weight.
A 2 x 2 / 2 pool costs no pass over the whole grid: columns are laid out by the corner of the 2 x 2
cell, so the pool is a maximum of four equal blocks, before bias and activation, on a quarter of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.backends.cpu.conv.base import PIECE_BYTES, Array, Convolution, spans
from engine.backends.cpu.conv.epilogue import (
    Epilogue,
    epilogue,
    join_pixels,
    joins_pixels,
)
from engine.backends.cpu.conv.pooling import pools_quads
from engine.backends.cpu.conv.window import Geometry, PaddedRows, take_signs, windows
from engine.backends.cpu.workers import Workers
from engine.plan import ops


def supports(op: ops.Conv2d) -> bool:
    return op.pool is None or pools_quads(op)


def prepare(op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> Convolution:
    assert supports(op)
    return Im2col(op, weight, bias, workers)


@dataclass(frozen=True)
class Piece:
    """A block of rows of one sample: where it comes from and where it goes."""

    rows: PaddedRows
    out: Array
    residual: Array | None


@dataclass(frozen=True)
class Block:
    """Views of one worker's scratch, for blocks of one shape and position."""

    borders: list[Array]
    cells: Array  # where the input goes
    columns: Array
    windows: Array
    left: Array  # the columns as matrices
    product: Array
    corners: Array  # (4 or 1, y, x, c): the product by corner of a pooled cell
    spare: Array


class Im2col(Convolution):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        self.op = op
        self.bias = bias
        self.workers = workers
        self.weight = _as_columns(weight, op.groups)
        self.weights = (self.weight,) if bias is None else (self.weight, bias)
        self.dtype = weight.dtype
        self.corners = 2 if pools_quads(op) else 1
        shape = op.out.shape
        self.geometry = Geometry.of(op, out_width=shape.width * self.corners)
        row_bytes = shape.width * self.corners**2 * weight[0].size * op.groups * self.dtype.itemsize
        self.spans = spans(shape.height, PIECE_BYTES // row_bytes)
        sizes = (math.prod(each) for each in self._scratch_shapes(self.spans[0][1]))
        workers.reserve(*(size * self.dtype.itemsize for size in sizes))

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Callable[[], None]:
        joined = joins_pixels(out, residual)
        pieces = [
            Piece(
                PaddedRows(self.geometry, sample, (first * self.corners, last * self.corners)),
                _rows(out[row], first, last, joined),
                None if residual is None else _rows(residual[row], first, last, joined),
            )
            for row, sample in enumerate(src)
            for first, last in self.spans
        ]
        finish = epilogue(self.op, _wide_bias(self.bias, self.op.out.shape.width, joined))
        blocks: dict[tuple[int, int, int, int], Block] = {}

        def run_piece(worker: int, number: int) -> None:
            piece = pieces[number]
            kind = (worker, *piece.rows.kind)
            block = blocks.get(kind)
            if block is None:
                block = blocks[kind] = self._block(worker, piece.rows, joined)
            self._run(block, piece, finish)

        return lambda: self.workers.run(run_piece, len(pieces))

    def _run(self, block: Block, piece: Piece, finish: Epilogue) -> None:
        for border in block.borders:
            border.fill(self.geometry.fill)
        np.copyto(block.cells, piece.rows.source)
        if self.op.signed:
            take_signs(block.cells)
        np.copyto(block.columns, block.windows)
        np.matmul(block.left, self.weight, out=block.product)
        corners = block.corners
        if self.corners == 2:
            np.maximum(corners[:2], corners[2:], out=corners[:2])
            np.maximum(corners[0], corners[1], out=corners[0])
        finish(corners[0], block.spare, piece.out, piece.residual)

    def _scratch_shapes(self, rows: int) -> tuple[tuple[int, ...], ...]:
        """Padded input, columns, product, spare."""
        shape = self.op.out.shape
        count = self.corners**2
        pixels = rows * shape.width
        depth = self.weight.shape[-2] * self.op.groups
        return (
            self.geometry.padded_shape(rows * self.corners),
            (count * pixels, depth),
            (count, pixels, shape.channels),
            (pixels, shape.channels),
        )

    def _block(self, worker: int, padded_rows: PaddedRows, joined: bool) -> Block:
        op, groups = self.op, self.op.groups
        rows = padded_rows.rows // self.corners
        width, filters = op.out.shape.width, op.out.shape.channels
        padded, columns, product, spare = self.workers.carve(
            worker, self.dtype, *self._scratch_shapes(rows)
        )
        cells = padded_rows.view(padded)
        seen = windows(self.geometry, cells, padded_rows.rows, quads=self.corners == 2)
        left = columns.reshape(groups, -1, columns.shape[1] // groups)
        by_group = product.reshape(-1, groups, filters // groups).transpose(1, 0, 2)
        corners = product.reshape(-1, rows, width, filters)
        spare = spare.reshape(rows, width, filters)
        return Block(
            borders=padded_rows.borders(padded),
            cells=padded_rows.inner(padded),
            columns=left.reshape(groups, *seen.shape[:-1], -1),
            windows=np.moveaxis(seen.reshape(*seen.shape[:-1], groups, -1), -2, 0),
            left=left if groups > 1 else left[0],
            product=by_group if groups > 1 else by_group[0],
            corners=join_pixels(corners) if joined else corners,
            spare=join_pixels(spare) if joined else spare,
        )


def _as_columns(weight: Array, groups: int) -> Array:
    """(filters, c, i, j) as (groups, i*j*c, filters / groups); without the axis of one group."""
    filters = len(weight)
    columns = weight.transpose(0, 2, 3, 1).reshape(groups, filters // groups, -1)
    packed = np.ascontiguousarray(columns.transpose(0, 2, 1))
    return packed if groups > 1 else packed[0]


def _rows(sample: Array, first: int, last: int, joined: bool) -> Array:
    rows = sample[first:last]
    return join_pixels(rows) if joined else rows


def _wide_bias(bias: Array | None, width: int, joined: bool) -> Array | None:
    return np.tile(bias, width) if joined and bias is not None else bias
