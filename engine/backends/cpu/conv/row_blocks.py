"""Convolutions that process one block of rows at a time, within a worker's cache."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.conv.base import FloatConvolution
from engine.backends.cpu.conv.epilogue import Stage, epilogue, join_pixels, joins_pixels
from engine.backends.cpu.conv.gather import Geometry, PaddedRows, take_signs
from engine.backends.cpu.storage import Kernel

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class BlockScratch:
    """Views of one worker's scratch, for blocks of one shape and position."""

    borders: list[Array]
    cells: Array  # the input, within its padding
    multiply: Callable[[], None]  # computes sums from the padded cells
    sums: Array
    spare: Array


@dataclass(frozen=True)
class RowBlock:
    """A block of rows of one sample: its input, output and residual."""

    rows: PaddedRows
    out: Array
    residual: Array | None


class RowBlocked(FloatConvolution):
    """Padding and epilogue; subclasses compute sums from padded cells."""

    geometry: Geometry
    spans: list[tuple[int, int]]  # the blocks, in rows of the output

    @abstractmethod
    def grid_rows(self, rows: int) -> int:
        """Return how many rows of the grid are computed for `rows` rows of the output."""

    @abstractmethod
    def scratch_shapes(self, rows: int) -> Shapes:
        """Return the shapes of the scratch that `plan_sums` needs in addition to the cells."""

    @abstractmethod
    def plan_sums(
        self, cells: Array, rows: int, *scratch: Array
    ) -> tuple[Callable[[], None], Array]:
        """Return a function that computes sums, and the (y, x, filter) array of these sums.

        `cells` are padded (y, x, c); the sums may be wider and taller than `rows` of the output.
        """

    def reserve(self) -> None:
        """Request scratch; the attributes have to be set."""
        shapes = self._all_shapes(max(last - first for first, last in self.spans))
        self.workers.reserve(*(math.prod(shape) * self.dtype.itemsize for shape in shapes))

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Kernel:
        joined = joins_pixels(out, residual)
        pieces = [
            RowBlock(
                PaddedRows(self.geometry, sample, self._grid_span(span)),
                _rows(out[row], span, joined),
                None if residual is None else _rows(residual[row], span, joined),
            )
            for row, sample in enumerate(src)
            for span in self.spans
        ]
        wide_bias = self.bias
        if joined and wide_bias is not None:
            wide_bias = np.tile(wide_bias, self.op.out.shape.width)
        finish = epilogue(self.op, wide_bias)
        blocks: dict[tuple[int, ...], BlockScratch] = {}

        def run_piece(worker: int, number: int) -> None:
            piece = pieces[number]
            kind = (worker, len(piece.out), *piece.rows.kind)
            if kind not in blocks:
                blocks[kind] = self._block(worker, piece, joined)
            self._run(blocks[kind], piece, finish)

        return lambda: self.workers.run(run_piece, len(pieces))

    def _run(self, block: BlockScratch, piece: RowBlock, finish: Stage) -> None:
        for border in block.borders:
            border.fill(-1 if self.op.signed else 0)
        np.copyto(block.cells, piece.rows.source)
        if self.op.signed:
            take_signs(block.cells)
        block.multiply()
        finish(block.sums, block.spare, piece.out, piece.residual)

    def _grid_span(self, span: tuple[int, int]) -> tuple[int, int]:
        first = self.grid_rows(span[0])
        return first, first + self.grid_rows(span[1] - span[0])

    def _all_shapes(self, rows: int) -> Shapes:
        shape = self.op.out.shape
        padded = self.geometry.padded_shape(self.grid_rows(rows))
        return padded, (rows, shape.width, shape.channels), *self.scratch_shapes(rows)

    def _block(self, worker: int, piece: RowBlock, joined: bool) -> BlockScratch:
        rows, width = len(piece.out), self.op.out.shape.width
        padded, spare, *scratch = self.workers.carve(worker, self.dtype, *self._all_shapes(rows))
        multiply, sums = self.plan_sums(piece.rows.view(padded), rows, *scratch)
        sums = sums[:rows, :width]  # cropped rows are still runs of whole pixels
        return BlockScratch(
            borders=piece.rows.borders(padded),
            cells=piece.rows.inner(padded),
            multiply=multiply,
            sums=join_pixels(sums) if joined else sums,
            spare=join_pixels(spare) if joined else spare,
        )


def _rows(sample: Array, span: tuple[int, int], joined: bool) -> Array:
    rows = sample[slice(*span)]
    return join_pixels(rows) if joined else rows
