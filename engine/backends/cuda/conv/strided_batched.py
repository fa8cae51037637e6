"""A grouped convolution as one strided-batched product: the groups lie a fixed step apart."""

from __future__ import annotations

from engine.backends.cuda.conv import geometry, im2col_gemm
from engine.backends.cuda.driver.cublas import Product
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.plan import ops

workspace = im2col_gemm.workspace
prepare = im2col_gemm.prepare


def supports(target: Target, op: ops.Conv2d) -> bool:
    return op.groups > 1


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    size, pitch = gpu.target.bytes_of(op.out), gpu.pitch(op.out)
    depth, filters = geometry.depth(op), op.weight.shape[0] // op.groups
    run, total = im2col_gemm.run_of_pixels(gpu.target, op), gpu.pixels(op.out)
    is_half = gpu.target.precision == "float16"
    for first in range(0, total, run):
        pixels = min(run, total - first)
        im2col_gemm.unfold(gpu, op, first, pixels)
        product = Product(
            *(pixels, filters, depth),
            *(depth, depth, pitch),
            transpose_b=True,
            count=op.groups,
            a_step=pixels * depth,
            b_step=filters * depth,
            out_step=filters,
            is_half=is_half,
            is_half_out=size == 2,
        )
        gpu.blas.multiply(
            product, gpu.workspace, gpu.array(op, "weight"), gpu[op.out] + first * pitch * size
        )
    geometry.finish(gpu, op)
