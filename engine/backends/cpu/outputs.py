"""What detection layers themselves put out, before boxes are decoded."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.channels import softmax_runs
from engine.backends.cpu.storage import Buffers, Step
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS

LOGISTIC = ACTIVATIONS["logistic"].numpy


def yolo_output(op: ops.YoloOutput, at: Buffers) -> Step:
    src, out = at.last(op.src), at.last(op.out)
    entries = (*src.shape[:3], op.anchors, op.box + 1 + op.classes)
    raw, made = src.reshape(entries), out.reshape(entries)
    assert np.shares_memory(made, out)
    spread = op.box // 4  # with sigmas: x, sigma, y, sigma, ...
    centre, extent = slice(0, 2 * spread, spread), slice(2 * spread, 4 * spread, spread)

    def run() -> None:
        if op.raw:
            np.copyto(out, src)
        else:  # all of it in one sweep; the widths and heights are put back
            _logistic(src, out)
            made[..., extent] = raw[..., extent]
        if op.scale_x_y != 1:
            made[..., centre] *= op.scale_x_y
            made[..., centre] -= (op.scale_x_y - 1) / 2

    return run


def _logistic(src: Array, out: Array) -> None:
    """1 / (1 + exp(-src)), step by step: a large temporary costs more than the arithmetic."""
    with np.errstate(over="ignore"):
        np.negative(src, out=out)
        np.exp(out, out=out)
        np.add(out, 1, out=out)
        np.divide(1, out, out=out)


def region_output(op: ops.RegionOutput, at: Buffers) -> Step:
    out = at[op.out]
    src = at.last(op.src)  # as stored, the values of a cell already lie together

    def run() -> None:
        values = src.reshape(-1, op.coords + 1 + op.classes).copy()
        if not op.background:
            values[:, op.coords] = LOGISTIC(values[:, op.coords])
        if op.runs:
            values[:, op.coords + 1 :] = softmax_runs(values[:, op.coords + 1 :], op.runs)
        out[...] = values.reshape(out.shape)

    return run
