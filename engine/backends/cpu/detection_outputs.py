"""Outputs of detection layers, before boxes are decoded."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.channelwise import softmax_runs
from engine.backends.cpu.storage import Buffers, Kernel
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS

LOGISTIC = ACTIVATIONS["logistic"].numpy


def yolo_output(op: ops.YoloOutput, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    entries = (*src.shape[:3], op.anchors, op.box + 1 + op.classes)
    raw, made = src.reshape(entries), out.reshape(entries)
    assert np.shares_memory(made, out)
    step = op.box // 4  # 2 with sigmas: x, sigma, y, sigma, ...
    # one column at a time: NumPy is slow at many runs of two values
    centre = [made[..., column] for column in range(0, 2 * step, step)]
    extent = [(made[..., column], raw[..., column]) for column in range(2 * step, 4 * step, step)]

    def run() -> None:
        if op.raw:
            np.copyto(out, src)
        else:  # one sweep over everything, then widths and heights as they were
            _logistic(src, out)
            for column, before in extent:
                np.copyto(column, before)
        if op.scale_x_y != 1:
            for column in centre:
                column *= op.scale_x_y
                column -= (op.scale_x_y - 1) / 2

    return run


def _logistic(src: Array, out: Array) -> None:
    """Write 1 / (1 + exp(-src)) step by step: temporaries cost more than the arithmetic."""
    with np.errstate(over="ignore"):
        np.negative(src, out=out)
        np.exp(out, out=out)
        np.add(out, 1, out=out)
        np.divide(1, out, out=out)


def region_output(op: ops.RegionOutput, buffers: Buffers) -> Kernel:
    out = buffers.nchw(op.out)
    src = buffers.nhwc(op.src)  # channels last, so the values of a cell are contiguous

    def run() -> None:
        values = src.reshape(-1, op.coords + 1 + op.classes).copy()
        if not op.background:
            values[:, op.coords] = LOGISTIC(values[:, op.coords])
        if op.runs:
            values[:, op.coords + 1 :] = softmax_runs(values[:, op.coords + 1 :], op.runs)
        out[...] = values.reshape(out.shape)

    return run
