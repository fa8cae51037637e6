"""A 1x1 convolution is a matrix product already: the map is (pixels, channels) as it lies."""

from __future__ import annotations

from engine.backends.cuda.conv import geometry, im2col_gemm
from engine.backends.cuda.driver.cublas import Product
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.plan import ops

prepare = im2col_gemm.prepare


def supports(target: Target, op: ops.Conv2d) -> bool:
    return op.is_pointwise and not op.signed


def workspace(target: Target, op: ops.Conv2d) -> int:
    return 0


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    depth, filters = op.weight.shape[1], op.weight.shape[0] // op.groups
    is_half = gpu.target.precision == "float16"
    product = Product(
        *(gpu.pixels(op.out), filters, depth),
        *(gpu.pitch(op.src), depth, gpu.pitch(op.out)),
        transpose_b=True,
        count=op.groups,
        a_step=depth,
        b_step=filters * depth,
        out_step=filters,
        is_half=is_half,
        is_half_out=gpu.target.bytes_of(op.out) == 2,
    )
    gpu.blas.multiply(product, gpu[op.src], gpu.array(op, "weight"), gpu[op.out])
    geometry.finish(gpu, op)
