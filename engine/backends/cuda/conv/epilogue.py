"""The host's side of kernels/conv/mma/epilogue.cuh: where finished values go, and the biases."""

from __future__ import annotations

import ctypes

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv import geometry
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.plan import ops

CORNER_PADDING = 8  # floats, as in the header


class Output(ctypes.Structure):
    """The struct of the same name."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("bias", "residual", "out")),
        *(
            (name, ctypes.c_int)
            for name in ("pixels", "pitch", "residual_pitch", "kind", "last", "is_aligned")
        ),
        *((name, ctypes.c_int) for name in ("entries", "box")),
        ("scale_x_y", ctypes.c_float),
        ("flag", ctypes.c_void_p),
    )


def output(gpu: Gpu, op: ops.Conv2d, *, filters: int) -> Output:
    """Lines of channels begin at multiples of `filters`, the filters of a group."""
    residual, residual_pitch = geometry.residual(gpu, op)
    written = (op.out, op.residual) if op.residual else (op.out,)
    line_bytes = filters * gpu.target.bytes_of(op.out)
    fills_packs = filters == op.out.shape.channels or line_bytes % 16 == 0
    return Output(
        *(gpu.array(op, "bias"), residual, gpu[op.out]),
        *(gpu.pixels(op.out), gpu.pitch(op.out), residual_pitch, *geometry.kinds(op)),
        int(fills_packs and all(map(gpu.is_aligned, written))),
        *(*geometry.yolo_numbers(op), gpu.flag if op.yolo else 0),
    )


def biases(op: ops.Conv2d, constants: Arrays, *, groups: int, lines: int) -> Array:
    """(groups, lines), zeros where a line is no filter or the convolution has no bias."""
    filters = op.weight.shape[0] // groups
    filled = np.zeros((groups, lines), np.float32)
    if "bias" in constants:
        filled[:, :filters] = constants["bias"].reshape(groups, filters)
    return filled
