"""What detection layers themselves put out, before boxes are decoded."""

from __future__ import annotations

import numpy as np

from engine.backends.cpu.channels import softmax_runs
from engine.backends.cpu.storage import Buffers, Step
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS

LOGISTIC = ACTIVATIONS["logistic"].numpy


def yolo_output(op: ops.YoloOutput, at: Buffers) -> Step:
    rows, _, height, width = at[op.out].shape
    entries = (rows, op.anchors, op.box + 1 + op.classes, height, width)
    src, out = at[op.src].reshape(entries), at[op.out].reshape(entries)
    assert np.shares_memory(out, at.last(op.out))
    centre = slice(0, 2) if op.box == 4 else slice(0, 3, 2)  # with sigmas: x, sigma, y, sigma, ...
    squashed = _squashed(op)

    def run() -> None:
        np.copyto(out, src)
        for part in squashed:
            out[:, :, part] = LOGISTIC(src[:, :, part])
        if op.scale_x_y != 1:
            out[:, :, centre] *= op.scale_x_y
            out[:, :, centre] -= (op.scale_x_y - 1) / 2

    return run


def _squashed(op: ops.YoloOutput) -> tuple[slice, ...]:
    """The entries of an anchor that become logistic: all but the width and the height."""
    if op.raw:
        return ()
    if op.box == 4:
        return slice(0, 2), slice(4, None)
    return slice(0, 4), slice(5, 6), slice(7, None)


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
