"""Convolution by plain loops: by its definition, and from tiles of the input in shared memory."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.conv import kernel_args
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops


class _PlainLoops(Algorithm):
    exact = True

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Return (groups, kernel_y, kernel_x, channels, filters): a warp reads adjacent weights."""
        weight = constants["weight"]
        grouped = weight.reshape(op.groups, -1, *weight.shape[1:]).transpose(0, 3, 4, 2, 1)
        return {**constants, "weight": np.ascontiguousarray(grouped, dtype=np.float32)}


class Direct(_PlainLoops):
    """The last resort, which runs every convolution."""

    name = "direct"
    reads_float = writes_float = True

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return True

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        floats = gpu.target.floats
        kind = "_from_floats" if op.src in floats else "_to_floats" if op.out in floats else ""
        gpu.launch_op(f"direct{kind}", op)


_CHANNELS, _FILTERS = 4, 8  # TILED_CHANNELS, TILED_FILTERS of the kernel
_PLANE, _LINE = (8, 16), (1, 128)  # tiles of a map and of a 1-D signal
_SHARED_BYTES = 48 << 10  # what every device grants without asking
_MOST_BLOCKS = 1 << 20


class Tiled(_PlainLoops):
    name = "tiled"
    priority = 1

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return not op.signed and _shared_bytes(op) <= _SHARED_BYTES

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        height, width = _tile(op)
        tiles = (
            gpu.rows(op.out) * -(-op.out.shape.height // height) * -(-op.out.shape.width // width)
        )
        blocks = tiles * op.groups * -(-kernel_args.filters_of_group(op) // _FILTERS)
        gpu.launch_grid(
            *("tiled", (min(blocks, _MOST_BLOCKS), 1, 1), height * width, gpu.arguments(op)),
            shared=_shared_bytes(op),
            tile_h=height,
            tile_w=width,
        )


def _tile(op: ops.Conv2d) -> tuple[int, int]:
    return _LINE if op.out.shape.height == 1 else _PLANE


def _shared_bytes(op: ops.Conv2d) -> int:
    sides = zip(_tile(op), op.stride, op.kernel, op.dilation, strict=True)
    halo = [(tile - 1) * stride + (kernel - 1) * step + 1 for tile, stride, kernel, step in sides]
    return 4 * _CHANNELS * halo[0] * halo[1]


ALGORITHMS = (Direct(), Tiled())
