"""A 1x1 convolution of very few pixels: one block computes each dot product."""

from __future__ import annotations

from engine.backends.cuda.conv import geometry, im2col_gemm
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.registry import Arrays
from engine.backends.cuda.ops.target import Target
from engine.plan import ops

_THREADS = 128  # DOT_THREADS of the kernel
_MOST_PIXELS = 64


class Dot(Algorithm):
    name = "dot"
    writes_float = True
    priority = 5

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        pixels = target.rows(op.out) * op.out.shape.area
        return op.is_pointwise and op.groups == 1 and not op.signed and pixels <= _MOST_PIXELS

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        return im2col_gemm.prepare(target, constants)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        blocks = gpu.pixels(op.out) * op.out.shape.channels
        is_float = gpu.target.bytes_of(op.out) == 4
        arguments = geometry.arguments("dot", gpu, op, has_floats=int(is_float))
        gpu.launch_grid("dot", (blocks, 1, 1), _THREADS, **arguments)


ALGORITHMS = (Dot(),)
