"""Convolution as darknet does it: unfold the windows, then one Sgemm for each group.

    col (pixels, depth) is the unfolded map, W (filters, depth) the weights:
    out (pixels, filters) = col * W'

All of it is row-major and cuBLAS is column-major; `Blas.multiply` explains the swap. Pixels of all
rows of the batch are one long matrix, so a batch needs no batched call. A map too long for the
workspace is done in runs of pixels.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.conv import geometry
from engine.backends.cuda.driver.cublas import Product
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops

WORKSPACE_BYTES = 64 << 20
UNFOLD_BY_WINDOW = 64  # from so many cells on, a thread a window wins over a thread a value


def supports(target: Target, op: ops.Conv2d) -> bool:
    return True


def run_of_pixels(target: Target, op: ops.Conv2d) -> int:
    """How many output pixels are unfolded at once."""
    pixels = target.rows(op.out) * op.out.shape.area
    line = op.groups * geometry.depth(op) * target.value_bytes
    return max(1, min(pixels, WORKSPACE_BYTES // line))


def workspace(target: Target, op: ops.Conv2d) -> int:
    return run_of_pixels(target, op) * op.groups * geometry.depth(op) * target.value_bytes


def prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    """Weights as (filters, kernel_y, kernel_x, channels), the order of an unfolded window."""
    weight = constants["weight"].transpose(0, 2, 3, 1)
    kind = np.float16 if target.precision == "float16" else np.float32
    return {**constants, "weight": np.ascontiguousarray(weight, dtype=kind)}


def unfold(gpu: Gpu, op: ops.Conv2d, first: int, pixels: int) -> None:
    """Unfold the windows of output pixels first .. first + pixels into the workspace."""
    channels, cells = op.weight.shape[1], op.kernel[0] * op.kernel[1]
    arguments = (
        *(gpu[op.src], gpu.workspace, first, pixels, op.groups, channels),
        *(*geometry.maps(op), gpu.pitch(op.src), *geometry.window(op), int(op.signed)),
    )
    values = 16 // gpu.target.value_bytes
    lines = op.groups * pixels * channels
    if gpu.packs(op.src) and channels % values == 0:
        gpu.launch("im2col_elements_packed", lines * cells // values, *arguments)
    elif cells >= UNFOLD_BY_WINDOW:
        gpu.launch("im2col_windows", lines, *arguments)
    else:
        gpu.launch("im2col_elements", lines * cells, *arguments)


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    size, pitch = gpu.target.value_bytes, gpu.pitch(op.out)
    out_size = gpu.target.bytes_of(op.out)
    depth, filters = geometry.depth(op), op.weight.shape[0] // op.groups
    run, total = run_of_pixels(gpu.target, op), gpu.pixels(op.out)
    is_half = gpu.target.precision == "float16"
    for first in range(0, total, run):
        pixels = min(run, total - first)
        unfold(gpu, op, first, pixels)
        product = Product(
            *(pixels, filters, depth),
            *(depth, depth, pitch),
            transpose_b=True,
            is_half=is_half,
            is_half_out=out_size == 2,
        )
        for group in range(op.groups):
            gpu.blas.multiply(
                product,
                gpu.workspace + group * pixels * depth * size,
                gpu.array(op, "weight") + group * filters * depth * size,
                gpu[op.out] + (first * pitch + group * filters) * out_size,
            )
    geometry.finish(gpu, op)
