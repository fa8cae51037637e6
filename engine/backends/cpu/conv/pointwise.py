"""1 x 1 convolution as a matrix product: sums[p, n] = src[p, :] @ weight[:, n] for pixels p.

Small maps are divided among threads by filters, others by pixels.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.conv.base import FloatConvolution, largest_divisor, spans
from engine.backends.cpu.conv.epilogue import LONG_ROW, epilogue
from engine.backends.cpu.storage import Kernel
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_PIECE_VALUES = 64 * 1024  # of sums, which stay in the cache during the epilogue
_FEWEST_PIXELS = 160  # with fewer rows, packing the weights dominates the product
_FEWEST_FILTERS = 128  # of a piece; BLAS packs the map again for each
_FEWEST_SHARED = 8 * 1024 * 1024  # multiplications that are worth waking a second thread
_RUN = 1024  # values: the bias is repeated to this length, as NumPy is slow on short rows


def supports(op: ops.Conv2d) -> bool:
    return op.is_pointwise and op.groups == 1 and op.pool is None and not op.signed


class Pointwise(FloatConvolution):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        super().__init__(op, weight, bias, workers)
        filters, depth = weight.shape[:2]
        area = op.out.shape.area
        self.run = largest_divisor(area, _RUN // filters) if filters < LONG_ROW else 1
        pixels = max(_FEWEST_PIXELS, _PIECE_VALUES // filters)
        self.spans = [
            (first * self.run, last * self.run)
            for first, last in spans(area // self.run, pixels // self.run)
        ]
        most = filters
        shared = filters > _FEWEST_FILTERS and area * filters * depth >= _FEWEST_SHARED
        if len(self.spans) == 1 and shared:
            self.run, most = 1, max(_FEWEST_FILTERS, filters // 4)
        self.filters = [slice(*span) for span in spans(filters, most)]
        columns = weight[:, :, 0, 0].T
        self.parts = tuple(np.ascontiguousarray(columns[:, part]) for part in self.filters)
        self.weights = self.parts if bias is None else (*self.parts, bias)
        size = max(last - first for first, last in self.spans) * most * weight.itemsize
        workers.reserve(size, size)

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Kernel:
        joined = all(array is None or array.flags.c_contiguous for array in (out, residual))
        run = self.run if joined else 1
        finishes = [
            epilogue(self.op, None if self.bias is None else np.tile(self.bias[part], run))
            for part in self.filters
        ]

        def rows_of(sample: Array, span: tuple[int, int], part: slice) -> Array:
            pixels = _pixels(sample)[slice(*span)]
            return pixels.reshape(-1, run * pixels.shape[1]) if run > 1 else pixels[:, part]

        pieces = [
            (
                number,
                _pixels(src[row])[slice(*span)],
                rows_of(out[row], span, part),
                None if residual is None else rows_of(residual[row], span, part),
            )
            for row in range(len(src))
            for span in self.spans
            for number, part in enumerate(self.filters)
        ]
        scratch: dict[tuple[int, int, int], tuple[Array, Array, Array]] = {}

        def run_piece(worker: int, number: int) -> None:
            part, columns, to, more = pieces[number]
            kind = (worker, part, len(columns))
            if kind not in scratch:
                scratch[kind] = self._scratch(worker, part, len(columns), run)
            product, sums, spare = scratch[kind]
            np.matmul(columns, self.parts[part], out=product)
            finishes[part](sums, spare, to, more)

        return lambda: self.workers.run(run_piece, len(pieces))

    def _scratch(self, worker: int, part: int, pixels: int, run: int) -> tuple[Array, Array, Array]:
        """Return the product, a view of it as runs of pixels, and spare memory like that."""
        shape = pixels, self.parts[part].shape[1]
        dtype = self.parts[part].dtype
        product, spare = self.workers.carve(worker, dtype, shape, shape)
        runs = pixels // run, run * shape[1]
        return product, product.reshape(runs), spare.reshape(runs)


prepare = Pointwise


def _pixels(sample: Array) -> Array:
    """View (y, x, c) as (p, c)."""
    height, width, channels = sample.shape
    step_y, step_x, _ = sample.strides
    assert step_y == width * step_x or height == 1, "the rows of a map have to be contiguous"
    return sample.reshape(height * width, channels)
