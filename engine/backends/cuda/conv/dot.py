"""A 1x1 convolution of very few pixels: dot products, a block each."""

from __future__ import annotations

from engine.backends.cuda.conv import geometry, im2col_gemm
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.plan import ops

THREADS = 128  # DOT_THREADS of kernels/dot.cu
MOST_PIXELS = 64

prepare = im2col_gemm.prepare


def supports(target: Target, op: ops.Conv2d) -> bool:
    pixels = target.rows(op.out) * op.out.shape.area
    return op.is_pointwise and op.groups == 1 and not op.signed and pixels <= MOST_PIXELS


def workspace(target: Target, op: ops.Conv2d) -> int:
    return 0


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    pointer, pitch = geometry.residual(gpu, op)
    pixels, filters = gpu.pixels(op.out), op.out.shape.channels
    gpu.launch_grid(
        "dot",
        (pixels * filters, 1, 1),
        THREADS,
        *(gpu[op.src], gpu.array(op, "weight"), gpu.array(op, "bias"), pointer, gpu[op.out]),
        *(pixels, op.src.shape.channels, filters),
        *(gpu.pitch(op.src), pitch, gpu.pitch(op.out), *geometry.kinds(op)),
        int(gpu.target.bytes_of(op.out) == 4),
    )
