"""Any convolution, in the plainest way: unfold the windows of some output rows, multiply."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.backends.cpu.conv.base import PIECE_BYTES, Array, Convolution
from engine.backends.cpu.windows import pool_max
from engine.backends.cpu.workers import Workers
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS


def supports(op: ops.Conv2d) -> bool:
    return True


def prepare(op: ops.Conv2d, weight: Array, bias: Array | None, workers: Workers) -> Convolution:
    return Plain(op, weight, bias)


class Plain(Convolution):
    def __init__(self, op: ops.Conv2d, weight: Array, bias: Array | None) -> None:
        self._op = op
        self._bias = bias
        matrix = weight.reshape(op.groups, -1, *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
        self._matrix = np.ascontiguousarray(matrix).reshape(op.groups, -1, matrix.shape[-1])
        self.weights = (self._matrix,) if bias is None else (self._matrix, bias)

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Callable[[], None]:
        op, grid = self._op, self._op.grid
        activate = ACTIVATIONS[op.activation].numpy
        activate_last = ACTIVATIONS[op.last_activation].numpy
        row_bytes = grid.width * self._matrix[..., 0].size * src.itemsize
        block = max(1, PIECE_BYTES // row_bytes)

        def run() -> None:
            windows = _windows(op, src)
            if op.pool is None:
                result = out
            else:
                result = np.empty((len(src), grid.height, grid.width, grid.channels), src.dtype)
            for row in range(len(src)):
                for first in range(0, grid.height, block):
                    sums = self._multiply(windows[row, first : first + block])
                    result[row, first : first + block] = activate(sums)
            if op.pool is not None:
                pool_max(result, out, op.pool)
            if residual is not None:
                np.add(out, residual, out=out)
            if op.last_activation != "linear":
                out[...] = activate_last(out)

        return run

    def _multiply(self, windows: Array) -> Array:
        """(y, x, group, i, j, channel) by (group, i j channel, filter) -> (y, x, group filter)."""
        height, width, groups = windows.shape[:3]
        columns = windows.transpose(2, 0, 1, 3, 4, 5).reshape(groups, height * width, -1)
        sums: Array = np.matmul(columns, self._matrix).transpose(1, 0, 2)
        sums = sums.reshape(height, width, -1)
        return sums if self._bias is None else sums + self._bias


def _windows(op: ops.Conv2d, src: Array) -> Array:
    """(rows, y, x, group, i, j, channel): what each output cell sees."""
    rows, height, width, channels = src.shape
    top, left, bottom, right = op.padding
    shape = (rows, height + top + bottom, width + left + right, channels)
    padded = np.full(shape, -1 if op.signed else 0, src.dtype)
    inside = padded[:, top : top + height, left : left + width]
    inside[...] = np.where(src > 0, 1, -1) if op.signed else src
    by_row, by_y, by_x, by_channel = padded.strides
    depth = channels // op.groups
    return as_strided(
        padded,
        (rows, op.grid.height, op.grid.width, op.groups, *op.kernel, depth),
        (
            by_row,
            by_y * op.stride[0],
            by_x * op.stride[1],
            by_channel * depth,
            by_y * op.dilation[0],
            by_x * op.dilation[1],
            by_channel,
        ),
        writeable=False,
    )
