"""Small maps with many weights: im2col once for all workers, which then divide the filters.

Weights are most of what is read, so each of them is read by one worker only.
"""

from __future__ import annotations

import math

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.conv.base import FloatConvolution, spans
from engine.backends.cpu.conv.epilogue import epilogue
from engine.backends.cpu.conv.gather import Geometry, PaddedRows, windows
from engine.backends.cpu.conv.im2col import as_columns
from engine.backends.cpu.storage import Kernel
from engine.backends.cpu.workers import Task, Workers
from engine.plan import ops

_COLUMNS = "columns"
_FEWEST_WEIGHTS = 512 * 1024  # values
_MOST_PIXELS = 1024
_FEWEST_FILTERS = 64  # of a piece; BLAS packs the columns again for every piece
_GATHER_PIECES = 4


def supports(op: ops.Conv2d) -> bool:
    return (
        math.prod(op.weight.shape) >= _FEWEST_WEIGHTS
        and op.groups == 1
        and op.pool is None
        and not op.signed
        and op.out.shape.area <= _MOST_PIXELS
    )


class FilterParallel(FloatConvolution):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        super().__init__(op, weight, bias, workers)
        filters = len(weight)
        self.filters = [slice(*span) for span in spans(filters, max(_FEWEST_FILTERS, filters // 4))]
        self.parts = tuple(as_columns(weight[part]) for part in self.filters)
        self.weights = self.parts if bias is None else (*self.parts, bias)
        shape = op.out.shape
        self.geometry = Geometry(op, out_width=shape.width)
        self.spans = spans(shape.height, -(-shape.height // _GATHER_PIECES))
        depth = math.prod(op.weight.shape[1:])
        self.columns_shape = (shape.height, shape.width, depth)
        item = self.dtype.itemsize
        workers.reserve_shared(_COLUMNS, math.prod(self.columns_shape) * item)
        largest = max(part.shape[1] for part in self.parts)
        product = shape.area * largest * item
        padded = math.prod(self.geometry.padded_shape(self.spans[0][1])) * item
        workers.reserve(max(padded, product), product)

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Kernel:
        (columns,) = self.workers.carve_shared(_COLUMNS, self.dtype, self.columns_shape)
        samples = [
            (
                self._gather(sample, columns),
                self._multiply(columns, out[row], None if residual is None else residual[row]),
            )
            for row, sample in enumerate(src)
        ]

        def run() -> None:
            for gather, multiply in samples:
                self.workers.run(gather, len(self.spans))
                self.workers.run(multiply, len(self.filters))

        return run

    def _gather(self, sample: Array, columns: Array) -> Task:
        blocks = [PaddedRows(self.geometry, sample, span) for span in self.spans]
        shape = (*self.columns_shape[:2], *self.op.kernel, sample.shape[-1])
        unfolded = columns.reshape(shape)

        def gather(worker: int, number: int) -> None:
            block = blocks[number]
            shape = self.geometry.padded_shape(block.rows)
            (padded,) = self.workers.carve(worker, self.dtype, shape)
            for border in block.borders(padded):
                border.fill(0)
            np.copyto(block.inner(padded), block.source)
            seen = windows(self.geometry, block.view(padded), block.rows)
            np.copyto(unfolded[slice(*self.spans[number])], seen)

        return gather

    def _multiply(self, columns: Array, out: Array, residual: Array | None) -> Task:
        height, width, _ = self.columns_shape
        left = columns.reshape(height * width, -1)
        finishes = [
            epilogue(self.op, None if self.bias is None else self.bias[part])
            for part in self.filters
        ]

        def multiply(worker: int, number: int) -> None:
            weight, part = self.parts[number], self.filters[number]
            shape = len(left), weight.shape[1]
            product, spare = self.workers.carve(worker, self.dtype, shape, shape)
            np.matmul(left, weight, out=product)
            block = height, width, weight.shape[1]
            more = None if residual is None else residual[..., part]
            finishes[number](product.reshape(block), spare.reshape(block), out[..., part], more)

        return multiply


prepare = FilterParallel
