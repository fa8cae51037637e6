"""A 1x1 convolution of very few pixels: one block computes each dot product."""

from __future__ import annotations

from engine.backends.cuda.conv import geometry, im2col_gemm
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
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
        pixels, filters = gpu.pixels(op.out), op.out.shape.channels
        gpu.launch_grid(
            "dot",
            (pixels * filters, 1, 1),
            _THREADS,
            pixels=pixels,
            channels=op.src.shape.channels,
            filters=filters,
            has_floats=int(gpu.target.bytes_of(op.out) == 4),
            **geometry.tensors(gpu, op),
            **geometry.pitches(gpu, op),
            **geometry.activations(op),
        )


ALGORITHMS = (Dot(),)
