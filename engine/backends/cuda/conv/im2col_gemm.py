"""Convolutions by cuBLAS: im2col and one GEMM for each group, as darknet does, and special cases.

    col (pixels, depth) holds the windows, W (filters, depth) the weights:
    out (pixels, filters) = col * W'

The pixels of all rows of the batch form one long matrix, so that a batch needs no batched call. If
the windows exceed the workspace, they are processed in runs of pixels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.backends.cuda.conv import kernel_args
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.driver.cublas import Product
from engine.backends.cuda.ops.dense import product_of
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops

WORKSPACE_BYTES = 64 << 20
_UNFOLD_BY_WINDOW = 64  # taps from which on a thread per window beats one per value


class _Gemm(Algorithm):
    """The base of these algorithms: their weights, and the GEMM of one group."""

    writes_float = True

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Return (filters, kernel_y, kernel_x, channels), the order of values in a window."""
        weight = constants["weight"].transpose(0, 2, 3, 1)
        kind = np.float16 if target.precision == "float16" else np.float32
        return {**constants, "weight": np.ascontiguousarray(weight, dtype=kind)}

    def _product(self, gpu: Gpu, op: ops.Conv2d, pixels: int) -> Product:
        depth = kernel_args.depth(op)
        sizes = pixels, kernel_args.filters_of_group(op), depth
        return product_of(gpu, op.out, sizes, a_pitch=depth)


class Im2colGemm(_Gemm):
    name = "im2col_gemm"
    priority = 2

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return True

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return _run_of_pixels(target, op) * op.groups * kernel_args.depth(op) * target.value_bytes

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        out_bytes = gpu.target.bytes_of(op.out)
        run, total = _run_of_pixels(gpu.target, op), gpu.pixels(op.out)
        for first in range(0, total, run):
            pixels = min(run, total - first)
            _im2col(gpu, op, first, pixels)
            out = gpu[op.out] + first * gpu.pitch(op.out) * out_bytes
            self._multiply(gpu, op, self._product(gpu, op, pixels), out)
        kernel_args.finish(gpu, op)

    def _multiply(self, gpu: Gpu, op: ops.Conv2d, product: Product, out: int) -> None:
        size, p = gpu.target.value_bytes, product
        for group in range(op.groups):
            gpu.blas.multiply(
                product,
                gpu.workspace + group * p.rows * p.depth * size,
                gpu.array(op, "weight") + group * p.columns * p.depth * size,
                out + group * p.columns * gpu.target.bytes_of(op.out),
            )


class StridedBatched(Im2colGemm):
    """The groups as one strided-batched GEMM: they lie a fixed step apart."""

    name = "strided_batched"
    priority = 3

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return op.groups > 1

    def _multiply(self, gpu: Gpu, op: ops.Conv2d, product: Product, out: int) -> None:
        gpu.blas.multiply(
            replace(product, count=op.groups, a_step=product.rows * product.depth),
            gpu.workspace,
            gpu.array(op, "weight"),
            out,
        )


class Pointwise(_Gemm):
    """A 1x1 convolution, which needs no im2col: its input is (pixels, channels) already."""

    name = "pointwise"
    priority = 4

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return op.is_pointwise and not op.signed

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        product = self._product(gpu, op, gpu.pixels(op.out))
        product = replace(product, a_pitch=gpu.pitch(op.src), count=op.groups, a_step=product.depth)
        gpu.blas.multiply(product, gpu[op.src], gpu.array(op, "weight"), gpu[op.out])
        kernel_args.finish(gpu, op)


def _run_of_pixels(target: Target, op: ops.Conv2d) -> int:
    """Return how many output pixels have their windows in the workspace at once."""
    pixels = target.rows(op.out) * op.out.shape.area
    line = op.groups * kernel_args.depth(op) * target.value_bytes
    return max(1, min(pixels, WORKSPACE_BYTES // line))


def _im2col(gpu: Gpu, op: ops.Conv2d, first: int, pixels: int) -> None:
    """Enqueue writing the windows of pixels first .. first + pixels into the workspace."""
    channels, taps = op.weight.shape[1], op.kernel[0] * op.kernel[1]
    values = gpu.target.pack
    windows = op.groups * pixels * channels
    if gpu.packs(op.src) and channels % values == 0:
        kernel, items = "im2col_elements_packed", windows * taps // values
    elif taps >= _UNFOLD_BY_WINDOW:
        kernel, items = "im2col_windows", windows
    else:
        kernel, items = "im2col_elements", windows * taps
    gpu.launch_op(kernel, op, items, col=gpu.workspace, first=first, pixels=pixels)


_WARPS = 4  # DOT_WARPS of the kernel
_MOST_PIXELS = 64


class Dot(_Gemm):
    name = "dot"
    priority = 5

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        pixels = target.rows(op.out) * op.out.shape.area
        return op.is_pointwise and op.groups == 1 and not op.signed and pixels <= _MOST_PIXELS

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        blocks = -(-gpu.values(op.out) // _WARPS)
        is_float = gpu.target.bytes_of(op.out) == 4
        kernel = "dot_packed" if gpu.packs(op.src) else "dot"
        grid, threads = (blocks, 1, 1), 32 * _WARPS
        gpu.launch_grid(kernel, grid, threads, gpu.arguments(op), has_floats=int(is_float))


ALGORITHMS = (Im2colGemm(), StridedBatched(), Pointwise(), Dot())
