"""One filter for each channel: a weighted sum of shifted rows, several pixels in one run.

out[y, x, c] = sum over i, j of weight[c,i,j] * padded[y*stride + i, x*stride + j, c]. Weights are
repeated along x, so that a run is many pixels long however few channels there are, and one einsum
multiplies and adds all taps in one pass. With a horizontal stride s the columns are first sorted by
their remainder of s, so that runs are without gaps again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.backends.cpu.conv.base import PIECE_BYTES, Array, Convolution, largest_divisor, spans
from engine.backends.cpu.conv.blocks import RowBlocked, Shapes
from engine.backends.cpu.conv.window import Geometry
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_RUN = 2048  # values: one tap of the weights, and the row it is added to, stay in the first cache
_PIECE_BYTES = PIECE_BYTES  # of output


def supports(op: ops.Conv2d) -> bool:
    one_each = op.is_depthwise and op.groups == op.weight.shape[0]
    return one_each and op.pool is None and not op.signed


def prepare(op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> Convolution:
    assert supports(op)
    return Depthwise(op, weight, bias, workers)


class Depthwise(RowBlocked):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        self.op = op
        self.bias = bias
        self.workers = workers
        self.dtype = weight.dtype
        shape = op.out.shape
        self.geometry = Geometry.of(op, out_width=shape.width)
        self.pixels = largest_divisor(shape.width, _RUN // shape.channels)  # of one run
        tiled = np.tile(weight[:, 0].transpose(1, 2, 0), (1, 1, self.pixels))
        # one sum over all taps, or with a stride one for each column of the kernel
        columns = op.kernel[1] if op.stride[1] > 1 else 1
        self.taps = tuple(np.ascontiguousarray(part) for part in np.split(tiled, columns, axis=1))
        self.weights = self.taps if bias is None else (*self.taps, bias)
        self.spans = spans(shape.height, _PIECE_BYTES // (shape.width * shape.channels * 4))
        self.reserve()

    def grid_rows(self, rows: int) -> int:
        return rows

    def scratch_shapes(self, rows: int) -> Shapes:
        """Sums, the sum of one column of taps, and the input with its columns sorted."""
        shape, stride = self.op.out.shape, self.op.stride[1]
        sums = (rows, shape.width, shape.channels)
        if stride == 1:
            return (sums,)
        columns = -(-self.geometry.padded_width // stride)
        return sums, sums, (stride, self.geometry.padded_rows(rows), columns, shape.channels)

    def plan_sums(
        self, cells: Array, rows: int, *scratch: Array
    ) -> tuple[Callable[[], None], Array]:
        sums = scratch[0]
        total = self._in_runs(sums)
        if self.op.stride[1] == 1:
            (weight,) = self.taps
            taps = self._taps(cells, rows, 0, self.op.kernel[1])
            return lambda: _weighted_sum(taps, weight, total), sums

        stride, dilation = self.op.stride[1], self.op.dilation[1]
        part, sorted_columns = self._in_runs(scratch[1]), scratch[2]
        sorting = []
        for remainder, to in enumerate(sorted_columns):
            columns = cells[:, remainder::stride]
            sorting.append((to[:, : columns.shape[1]], columns))
        places = [divmod(j * dilation, stride) for j in range(self.op.kernel[1])]
        first, *others = [
            (self._taps(sorted_columns[remainder], rows, column, 1), weight)
            for (column, remainder), weight in zip(places, self.taps, strict=True)
        ]

        def multiply() -> None:
            for to, columns in sorting:
                np.copyto(to, columns)
            _weighted_sum(*first, total)
            for taps, weight in others:
                _weighted_sum(taps, weight, part)
                np.add(total, part, out=total)

        return multiply, sums

    def _in_runs(self, sums: Array) -> Array:
        return sums.reshape(len(sums), -1, self.pixels * sums.shape[-1])

    def _taps(self, cells: Array, rows: int, column: int, count: int) -> Array:
        """View (y, x, c) as (i, j, y, run of x, value): `count` columns of taps from `column`."""
        channels, width = self.op.out.shape.channels, self.op.out.shape.width
        y, x, item = cells.strides
        return as_strided(
            cells[:, column:],
            (self.op.kernel[0], count, rows, width // self.pixels, self.pixels * channels),
            (
                y * self.op.dilation[0],
                x * self.op.dilation[1],
                y * self.op.stride[0],
                x * self.pixels,
                item,
            ),
            writeable=False,
        )


def _weighted_sum(taps: Array, weight: Array, out: Array) -> None:
    np.einsum("ijyxv,ijv->yxv", taps, weight, out=out)
