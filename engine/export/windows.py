"""Pooling in ONNX."""

from __future__ import annotations

import numpy as np

from engine.export.writer import Writer, writes
from engine.plan import ops
from engine.plan.shapes import Shape, Window

_LOWEST = float(np.finfo(np.float32).min)


@writes(ops.MaxPool)
def max_pool(onto: Writer, op: ops.MaxPool) -> str:
    value, window = onto[op.src], op.window
    pads = _trimmed(window, op.src.shape, op.out.shape)
    if not _fits(window, pads):  # ONNX has no windows that lie wholly outside
        value = onto.pad(value, (0, 0, *pads[:2]), (0, 0, *pads[2:]), _LOWEST)
        pads = (0, 0, 0, 0)
    return onto.node("MaxPool", value, kernel_shape=window.size, strides=window.stride, pads=pads)


@writes(ops.AveragePool)
def average_pool(onto: Writer, op: ops.AveragePool) -> str:
    pads = _trimmed(op.window, op.src.shape, op.out.shape)
    if not _fits(op.window, pads):
        onto.refuse("windows that lie wholly outside the map")
    return onto.node(
        "AveragePool",
        onto[op.src],
        kernel_shape=op.window.size,
        strides=op.window.stride,
        pads=pads,
        count_include_pad=0,
    )


@writes(ops.MaxPoolDepth)
def max_pool_depth(onto: Writer, op: ops.MaxPoolDepth) -> str:
    channels, groups = op.src.shape.channels, op.out.shape.channels
    per_group = -(-channels // groups)
    value, missing = onto[op.src], per_group * groups - channels
    if missing:
        value = onto.pad(value, (0, 0, 0, 0), (0, missing, 0, 0), _LOWEST)
    layers = onto.reshape(value, 0, per_group, op.out.shape.size)
    return onto.shaped(onto.reduce("Max", layers, 1), op.out.shape)


def _trimmed(window: Window, src: Shape, out: Shape) -> tuple[int, int, int, int]:
    """The padding that the last windows reach: with more, ONNX would count another one."""
    top, left, _, _ = window.padding
    bottom = (out.height - 1) * window.stride[0] + window.size[0] - top - src.height
    right = (out.width - 1) * window.stride[1] + window.size[1] - left - src.width
    return top, left, max(0, bottom), max(0, right)


def _fits(window: Window, pads: tuple[int, int, int, int]) -> bool:
    (height, width), (top, left, bottom, right) = window.size, pads
    return max(top, bottom) < height and max(left, right) < width
