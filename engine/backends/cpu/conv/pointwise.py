"""1 x 1 convolution: a map is its own matrix of columns, sums[p, n] = src[p, :] @ weight[:, n]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.backends.cpu.conv.base import Array, Convolution, largest_divisor, spans
from engine.backends.cpu.conv.epilogue import LONG_ROW, epilogue
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_PIECE_VALUES = 64 * 1024  # of sums: they pass through the cache once for each stage
_FEWEST_PIXELS = 160  # a product of fewer rows spends its time on packing the weights
_RUN = 1024  # values: the bias is repeated to this length, NumPy's loops are slow on short rows


def supports(op: ops.Conv2d) -> bool:
    return op.is_pointwise and op.groups == 1 and op.pool is None and not op.signed


def prepare(op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> Convolution:
    assert supports(op)
    return Pointwise(op, weight, bias, workers)


class Pointwise(Convolution):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        self.op = op
        self.bias = bias
        self.workers = workers
        self.weight = np.ascontiguousarray(weight[:, :, 0, 0].T)
        self.weights = (self.weight,) if bias is None else (self.weight, bias)
        filters, area = op.out.shape.channels, op.out.shape.area
        self.run = largest_divisor(area, _RUN // filters) if filters < LONG_ROW else 1
        pixels = max(_FEWEST_PIXELS, _PIECE_VALUES // filters)
        self.spans = [
            (first * self.run, last * self.run)
            for first, last in spans(area // self.run, pixels // self.run)
        ]
        size = max(last - first for first, last in self.spans) * filters * weight.itemsize
        workers.reserve(size, size)

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Callable[[], None]:
        joined = all(array is None or array.flags.c_contiguous for array in (out, residual))
        run = self.run if joined else 1
        bias = self.bias if self.bias is None else np.tile(self.bias, run)
        finish = epilogue(self.op, bias)
        pieces = [
            (
                _pixels(src[row])[first:last],
                _pixels(out[row])[first:last].reshape(-1, run * out.shape[-1]),
                None
                if residual is None
                else _pixels(residual[row])[first:last].reshape(-1, run * out.shape[-1]),
            )
            for row in range(len(src))
            for first, last in self.spans
        ]
        scratch: dict[tuple[int, int], tuple[Array, Array, Array]] = {}

        def run_piece(worker: int, number: int) -> None:
            columns, to, more = pieces[number]
            kind = (worker, len(columns))
            if kind not in scratch:
                scratch[kind] = self._scratch(worker, len(columns), run)
            product, sums, spare = scratch[kind]
            np.matmul(columns, self.weight, out=product)
            finish(sums, spare, to, more)

        return lambda: self.workers.run(run_piece, len(pieces))

    def _scratch(self, worker: int, pixels: int, run: int) -> tuple[Array, Array, Array]:
        """The product, the same as runs of pixels, and spare memory like it."""
        shape = pixels, self.op.out.shape.channels
        product, spare = self.workers.carve(worker, self.weight.dtype, shape, shape)
        runs = pixels // run, run * shape[1]
        return product, product.reshape(runs), spare.reshape(runs)


def _pixels(sample: Array) -> Array:
    """View (y, x, c) as (p, c)."""
    height, width, channels = sample.shape
    step_y, step_x, _ = sample.strides
    assert step_y == width * step_x or height == 1, "rows of a map lie one behind the other"
    return sample.reshape(height * width, channels)
