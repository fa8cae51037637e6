"""Arguments of kernels/conv/mma/epilogue.cuh: where results go, and the biases."""

from __future__ import annotations

import ctypes

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv import geometry
from engine.backends.cuda.conv.kernel_args import KernelArgs, ints, pointers
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.plan import ops

CORNER_PADDING = 8  # floats, as in the header


class Output(KernelArgs):
    struct = ("epilogue.cuh", "Output")
    _fields_ = (
        *pointers("bias", "residual", "out"),
        *ints("pixels", "pitch", "residual_pitch", "kind", "last", "is_aligned"),
        *ints("entries", "box"),
        ("scale_x_y", ctypes.c_float),
        *pointers("flag"),
    )


def output(gpu: Gpu, op: ops.Conv2d, *, filters: int) -> Output:
    """Return the arguments for groups of `filters` filters each."""
    written = (op.out, op.residual) if op.residual else (op.out,)
    group_bytes = filters * gpu.target.bytes_of(op.out)
    fills_packs = filters == op.out.shape.channels or group_bytes % 16 == 0
    return Output(
        bias=gpu.array(op, "bias"),
        residual=gpu[op.residual] if op.residual else 0,
        out=gpu[op.out],
        pixels=gpu.pixels(op.out),
        pitch=gpu.pitch(op.out),
        residual_pitch=gpu.pitch(op.residual) if op.residual else 0,
        is_aligned=int(fills_packs and all(map(gpu.is_aligned, written))),
        flag=gpu.flag if op.yolo else 0,
        **geometry.activations(op),
        **geometry.yolo(op),
    )


def biases(op: ops.Conv2d, constants: Arrays, *, groups: int, lines: int) -> Array:
    """Return (groups, lines) biases, padded with zeros to the lines of the tiles."""
    filters = op.weight.shape[0] // groups
    padded = np.zeros((groups, lines), np.float32)
    if "bias" in constants:
        padded[:, :filters] = constants["bias"].reshape(groups, filters)
    return padded
