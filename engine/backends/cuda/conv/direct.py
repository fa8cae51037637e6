"""The convolution as it is defined: one thread for each output value."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.conv import geometry
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.registry import Arrays
from engine.backends.cuda.ops.target import Target
from engine.plan import ops


def prepare(op: ops.Conv2d, constants: Arrays) -> Arrays:
    """Weights as (groups, kernel_y, kernel_x, channels, filters): a warp reads neighbours."""
    weight = constants["weight"]
    grouped = weight.reshape(op.groups, -1, *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
    return {**constants, "weight": np.ascontiguousarray(grouped, dtype=np.float32)}


class Direct(Algorithm):
    """It runs every convolution, and so is the last resort."""

    name = "direct"
    reads_float = writes_float = exact = True

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return True

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        return prepare(op, constants)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        floats = gpu.target.floats
        kind = "_from_floats" if op.src in floats else "_to_floats" if op.out in floats else ""
        kernel = f"direct{kind}"
        items = gpu.pixels(op.out) * op.out.shape.channels
        gpu.launch(kernel, items, **geometry.arguments(kernel, gpu, op))


ALGORITHMS = (Direct(),)
