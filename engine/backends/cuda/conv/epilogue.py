"""Arguments of kernels/conv/mma/epilogue.cuh: where results go, and the biases."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv import geometry
from engine.backends.cuda.conv.kernel_args import KernelArgs, struct
from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.registry import Arrays
from engine.plan import ops

CORNER_PADDING = 8  # floats, as in the header


Output = struct("epilogue.cuh", "Output")


def output(gpu: Gpu, op: ops.Conv2d, *, filters: int) -> KernelArgs:
    """Return the arguments for groups of `filters` filters each."""
    written = (op.out, op.residual) if op.residual else (op.out,)
    group_bytes = filters * gpu.target.bytes_of(op.out)
    fills_packs = filters == op.out.shape.channels or group_bytes % 16 == 0
    is_aligned = fills_packs and all(map(gpu.is_aligned, written))
    known = geometry.known(gpu, op)
    return Output.of(known, pitch=gpu.pitch(op.out), is_aligned=int(is_aligned))


def biases(op: ops.Conv2d, constants: Arrays, *, groups: int, lines: int) -> Array:
    """Return (groups, lines) biases, padded with zeros to the lines of the tiles."""
    filters = op.weight.shape[0] // groups
    padded = np.zeros((groups, lines), np.float32)
    if "bias" in constants:
        padded[:, :filters] = constants["bias"].reshape(groups, filters)
    return padded
