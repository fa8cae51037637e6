"""Convolution as it is written, one thread for each output value; for thin inputs."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.conv import geometry
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops


def supports(target: Target, op: ops.Conv2d) -> bool:
    return True


def workspace(target: Target, op: ops.Conv2d) -> int:
    return 0


def prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    """Weights as (groups, kernel_y, kernel_x, channels, filters): neighbours for a warp."""
    weight = constants["weight"]
    grouped = weight.reshape(op.groups, -1, *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
    return {**constants, "weight": np.ascontiguousarray(grouped, dtype=np.float32)}


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    pointer, pitch = geometry.residual(gpu, op)
    floats = gpu.target.floats
    kind = "_from_floats" if op.src in floats else "_to_floats" if op.out in floats else ""
    gpu.launch(
        f"direct{kind}",
        gpu.pixels(op.out) * op.out.shape.channels,
        *(gpu[op.src], gpu.array(op, "weight"), gpu.array(op, "bias"), pointer, gpu[op.out]),
        *(gpu.rows(op.out), op.groups, op.weight.shape[1], op.weight.shape[0] // op.groups),
        *(*geometry.maps(op), gpu.pitch(op.src), pitch, gpu.pitch(op.out)),
        *(*geometry.window(op), int(op.signed), *geometry.kinds(op)),
    )
