"""Ops that move values: concatenations, reshapes, up- and downsampling, time steps."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.storage import Buffers, Step, flat
from engine.plan import ops


def concat(op: ops.Concat, at: Buffers) -> Step:
    out = at.last(op.out)
    pairs = [
        (
            out[..., part.at : part.at + part.count],
            at.last(part.src)[..., part.first : part.first + part.count],
        )
        for part in op.parts
    ]
    moves = [(to, values) for to, values in pairs if not _is_same(to, values)]

    def run() -> None:
        for to, values in moves:
            np.copyto(to, values)

    return run


def reshape(op: ops.Reshape, at: Buffers) -> Step:
    src, out = at[op.src], at[op.out]

    def run() -> None:
        out[...] = src.reshape(out.shape)

    return run


def upsample(op: ops.Upsample, at: Buffers) -> Step:
    src = at.last(op.src)[:, :, None, :, None]
    rows, height, _, width, _, channels = src.shape
    stride = op.stride
    blocks = at.last(op.out).reshape(rows, height, stride, width, stride, channels)

    def run() -> None:
        if op.scale == 1:
            np.copyto(blocks, src)
        else:
            np.multiply(src, op.scale, out=blocks)

    return run


def block_sum(op: ops.BlockSum, at: Buffers) -> Step:
    stride, out = op.stride, at.last(op.out)
    rows, height, width, channels = out.shape
    src = at.last(op.src)[:, : height * stride, : width * stride]
    blocks = src.reshape(rows, height, stride, width, stride, channels)

    def run() -> None:
        np.sum(blocks, axis=(2, 4), out=out)
        if op.scale != 1:
            np.multiply(out, op.scale, out=out)

    return run


def reorg(op: ops.Reorg, at: Buffers) -> Step:
    src, out = at[op.src], at[op.out]
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
    """For each flat position `at` of the grid, the flat position `from`."""
    channels, height, width = op.grid.sides
    stride = op.stride
    count = channels // stride**2
    k, j, i = np.ogrid[:channels, :height, :width]
    y = j * stride + k // count // stride
    x = i * stride + k // count % stride
    return np.asarray((k % count * height * stride + y) * width * stride + x).reshape(-1)


def crop(op: ops.Crop, at: Buffers) -> Step:
    out = at[op.out]
    _, _, height, width = out.shape
    src = at[op.src][:, :, op.top : op.top + height, op.left : op.left + width]

    def run() -> None:
        np.multiply(src, op.scale, out=out)
        np.add(out, op.shift, out=out)

    return run


def take_step(op: ops.TakeStep, at: Buffers) -> Step:
    out = at.last(op.out)
    src = at.last(op.src)[op.step * len(out) : (op.step + 1) * len(out)]

    def run() -> None:
        np.copyto(out, src)

    return run


def join_steps(op: ops.JoinSteps, at: Buffers) -> Step:
    sources = [at.last(source) for source in op.sources]
    parts = np.split(at.last(op.out), len(sources))

    def run() -> None:
        for part, source in zip(parts, sources, strict=True):
            np.copyto(part, source)

    return run


def store(op: ops.Store, at: Buffers) -> Step:
    src, out = at.last(op.src), at.last(op.out)

    def run() -> None:
        np.copyto(out, src)

    return run


def load(op: ops.Load, at: Buffers) -> Step:
    out = at[op.out]
    values = at.constant(op.constant).reshape(op.out.shape.sides)

    def run() -> None:
        out[...] = values

    return run


def _is_same(one: Array, other: Array) -> bool:
    """Whether both are the same values in memory, as when a part was placed where it goes."""
    return one.__array_interface__ == other.__array_interface__
