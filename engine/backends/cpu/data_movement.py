"""Ops that move values: concatenation, reshape, upsampling, reorg, crop and time steps."""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.storage import Buffers, Kernel, flat
from engine.plan import ops


def concat(op: ops.Concat, buffers: Buffers) -> Kernel:
    out = buffers.nhwc(op.out)
    pairs = [
        (
            out[..., part.at : part.at + part.count],
            buffers.nhwc(part.src)[..., part.first : part.first + part.count],
        )
        for part in op.parts
    ]
    moves = [(to, values) for to, values in pairs if not _share_memory(to, values)]

    def run() -> None:
        for to, values in moves:
            np.copyto(to, values)

    return run


def reshape(op: ops.Reshape, buffers: Buffers) -> Kernel:
    src, out = buffers.nchw(op.src), buffers.nchw(op.out)

    def run() -> None:
        out[...] = src.reshape(out.shape)

    return run


def upsample(op: ops.Upsample, buffers: Buffers) -> Kernel:
    src = buffers.nhwc(op.src)[:, :, None, :, None]
    rows, height, _, width, _, channels = src.shape
    stride = op.stride
    blocks = buffers.nhwc(op.out).reshape(rows, height, stride, width, stride, channels)

    def run() -> None:
        if op.scale == 1:
            np.copyto(blocks, src)
        else:
            np.multiply(src, op.scale, out=blocks)

    return run


def block_sum(op: ops.BlockSum, buffers: Buffers) -> Kernel:
    stride, out = op.stride, buffers.nhwc(op.out)
    rows, height, width, channels = out.shape
    src = buffers.nhwc(op.src)[:, : height * stride, : width * stride]
    blocks = src.reshape(rows, height, stride, width, stride, channels)

    def run() -> None:
        np.sum(blocks, axis=(2, 4), out=out)
        if op.scale != 1:
            np.multiply(out, op.scale, out=out)

    return run


def reorg(op: ops.Reorg, buffers: Buffers) -> Kernel:
    src, out = buffers.nchw(op.src), buffers.nchw(op.out)
    index = reorg_index(op)

    def run() -> None:
        values = flat(src)
        if op.reverse:
            moved = np.empty_like(values)
            moved[:, index] = values
        else:
            moved = values[:, index]
        out[...] = moved.reshape(out.shape)

    return run


def reorg_index(op: ops.Reorg) -> Array:
    """Return the flat position `from` of each flat position `at` of the grid; see ops.Reorg."""
    channels, height, width = op.grid.sides
    stride = op.stride
    count = channels // stride**2
    k, j, i = np.ogrid[:channels, :height, :width]
    y = j * stride + k // count // stride
    x = i * stride + k // count % stride
    return np.asarray((k % count * height * stride + y) * width * stride + x).reshape(-1)


def crop(op: ops.Crop, buffers: Buffers) -> Kernel:
    out = buffers.nchw(op.out)
    _, _, height, width = out.shape
    src = buffers.nchw(op.src)[:, :, op.top : op.top + height, op.left : op.left + width]

    def run() -> None:
        np.multiply(src, op.scale, out=out)
        np.add(out, op.shift, out=out)

    return run


def take_step(op: ops.TakeStep, buffers: Buffers) -> Kernel:
    out = buffers.nhwc(op.out)
    src = buffers.nhwc(op.src)[op.step * len(out) : (op.step + 1) * len(out)]
    return partial(np.copyto, out, src)


def join_steps(op: ops.JoinSteps, buffers: Buffers) -> Kernel:
    sources = [buffers.nhwc(source) for source in op.sources]
    parts = np.split(buffers.nhwc(op.out), len(sources))

    def run() -> None:
        for part, source in zip(parts, sources, strict=True):
            np.copyto(part, source)

    return run


def store(op: ops.Store, buffers: Buffers) -> Kernel:
    return partial(np.copyto, buffers.nhwc(op.out), buffers.nhwc(op.src))


def load(op: ops.Load, buffers: Buffers) -> Kernel:
    out = buffers.nchw(op.out)
    values = buffers.constant(op.constant).reshape(op.out.shape.sides)
    return partial(np.copyto, out, values)


def _share_memory(one: Array, other: Array) -> bool:
    """Return whether both are the same memory, as when a source was computed in place."""
    return one.__array_interface__ == other.__array_interface__
