"""Ops that move values, in ONNX."""

from __future__ import annotations

import numpy as np

from engine.export.writer import Writer, writes
from engine.plan import ops


@writes(ops.Concat)
def concat(onto: Writer, op: ops.Concat) -> str:
    parts = []
    for part in sorted(op.parts, key=lambda part: part.at):
        value = onto[part.src]
        if part.count != part.src.shape.channels:
            value = onto.slice(value, part.first, part.first + part.count, 1)
        parts.append(value)
    return parts[0] if len(parts) == 1 else onto.node("Concat", *parts, axis=1)


@writes(ops.Reshape)
def reshape(onto: Writer, op: ops.Reshape) -> str:
    return onto.shaped(onto[op.src], op.out.shape)


@writes(ops.Upsample)
def upsample(onto: Writer, op: ops.Upsample) -> str:
    value = onto.node(
        "Resize",
        onto[op.src],
        "",
        onto.array(np.array([1, 1, op.stride, op.stride], np.float32)),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    return onto.scaled(value, op.scale)


@writes(ops.BlockSum)
def block_sum(onto: Writer, op: ops.BlockSum) -> str:
    sides = [op.stride] * 2
    means = onto.node("AveragePool", onto[op.src], kernel_shape=sides, strides=sides)
    return onto.scaled(means, op.stride**2 * op.scale)


@writes(ops.Reorg)
def reorg(onto: Writer, op: ops.Reorg) -> str:
    """A transposition of (q, H, s, W, s) to (s, s, q, H, W), or back."""
    stride, (channels, height, width) = op.stride, op.grid.sides
    quotient = channels // stride**2
    if op.reverse:
        sides, order = (stride, stride, quotient, height, width), (3, 4, 1, 5, 2)
    else:
        sides, order = (quotient, height, stride, width, stride), (3, 5, 1, 2, 4)
    value = onto.reshape(onto[op.src], 0, *sides)
    return onto.shaped(onto.node("Transpose", value, perm=[0, *order]), op.out.shape)


@writes(ops.Crop)
def crop(onto: Writer, op: ops.Crop) -> str:
    value = onto.slice(onto[op.src], op.top, op.top + op.out.shape.height, 2)
    value = onto.slice(value, op.left, op.left + op.out.shape.width, 3)
    return onto.scaled(value, op.scale, op.shift)
