"""Pooling, separated into a vertical and a horizontal pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.storage import Buffers, Kernel
from engine.plan import ops
from engine.plan.shapes import Window

LOWEST = -float(np.finfo(np.float32).max)  # darknet's maximum over no cells, in any precision


def max_pool(op: ops.MaxPool, buffers: Buffers) -> Kernel:
    return partial(pool_max, buffers.nhwc(op.src), buffers.nhwc(op.out), op.window)


def pool_max(src: Array, out: Array, window: Window) -> None:
    """Write the maxima of the windows of `src`, both (rows, height, width, channels)."""
    (size_y, size_x), (stride_y, stride_x) = window.size, window.stride
    top, left, _, _ = window.padding
    lowest = np.iinfo(src.dtype).min if src.dtype.kind == "i" else LOWEST
    tall = np.full((len(src), out.shape[1], *src.shape[2:]), lowest, src.dtype)
    for _, to, cells in taps(src.shape[1], out.shape[1], size_y, stride=stride_y, before=top):
        np.maximum(tall[:, to], src[:, cells], out=tall[:, to])
    out.fill(lowest)
    for _, to, cells in taps(src.shape[2], out.shape[2], size_x, stride=stride_x, before=left):
        np.maximum(out[:, :, to], tall[:, :, cells], out=out[:, :, to])


def average_pool(op: ops.AveragePool, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    if op.window == Window((op.src.shape.height, op.src.shape.width)):
        return _average_all(src, out)
    (size_y, size_x), (stride_y, stride_x) = op.window.size, op.window.stride
    top, left, _, _ = op.window.padding
    down = list(taps(src.shape[1], out.shape[1], size_y, stride=stride_y, before=top))
    across = list(taps(src.shape[2], out.shape[2], size_x, stride=stride_x, before=left))
    cells = np.zeros(out.shape[1:], out.dtype)
    cells += _count(down, out.shape[1])[:, None, None] * _count(across, out.shape[2])[:, None]

    def run() -> None:
        tall = np.zeros((len(src), out.shape[1], *src.shape[2:]), src.dtype)
        for _, to, inside in down:
            tall[:, to] += src[:, inside]
        out.fill(0)
        for _, to, inside in across:
            out[:, :, to] += tall[:, :, inside]
        np.divide(out, cells, out=out)

    return run


def _average_all(src: Array, out: Array) -> Kernel:
    rows, height, width, channels = src.shape
    column = out.reshape(rows, channels)

    def run() -> None:
        np.sum(src.sum(axis=1), axis=1, out=column)  # two short sums round less than a long one
        np.divide(column, height * width, out=column)

    return run


def max_pool_depth(op: ops.MaxPoolDepth, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    count = out.shape[-1]

    def run() -> None:
        np.copyto(out, src[..., :count])
        for first in range(count, src.shape[-1], count):
            group = src[..., first : first + count]
            best = out[..., : group.shape[-1]]
            np.maximum(best, group, out=best)

    return run


def taps(
    extent: int, outputs: int, size: int, *, stride: int, before: int, dilation: int = 1
) -> Iterator[tuple[int, slice, slice]]:
    """Yield (cell of a window, the outputs for which it lies inside, the inputs they read)."""
    for cell in range(size):
        offset = cell * dilation - before
        first = max(0, -(offset // stride))
        last = min(outputs, -((offset - extent) // stride))
        if first < last:
            start = first * stride + offset
            stop = start + (last - first - 1) * stride + 1
            yield cell, slice(first, last), slice(start, stop, stride)


def _count(cells: list[tuple[int, slice, slice]], outputs: int) -> Array:
    counts = np.zeros(outputs)
    for _, to, _ in cells:
        counts[to] += 1
    return counts
