"""Convolution from shared memory: a block loads a tile of the map with the halo around it."""

from __future__ import annotations

from engine.backends.cuda.conv import direct, geometry
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.registry import Arrays
from engine.backends.cuda.ops.target import Target
from engine.plan import ops

_CHANNELS, _FILTERS = 4, 8  # TILED_CHANNELS, TILED_FILTERS of the kernel
_PLANE, _LINE = (8, 16), (1, 128)  # tiles of a map and of a 1-D signal
_SHARED_BYTES = 48 << 10  # what every device grants without asking
_MOST_BLOCKS = 1 << 20


class Tiled(Algorithm):
    name = "tiled"
    exact = True
    priority = 1

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return not op.signed and _shared_bytes(op) <= _SHARED_BYTES

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        return direct.prepare(op, constants)

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        height, width = _tile(op)
        tiles = (
            gpu.rows(op.out) * -(-op.out.shape.height // height) * -(-op.out.shape.width // width)
        )
        blocks = tiles * op.groups * -(-geometry.filters_of_group(op) // _FILTERS)
        gpu.launch_grid(
            "tiled",
            (min(blocks, _MOST_BLOCKS), 1, 1),
            height * width,
            shared=_shared_bytes(op),
            **geometry.arguments("tiled", gpu, op, tile_h=height, tile_w=width),
        )


def _tile(op: ops.Conv2d) -> tuple[int, int]:
    return _LINE if op.out.shape.height == 1 else _PLANE


def _shared_bytes(op: ops.Conv2d) -> int:
    sides = zip(_tile(op), op.stride, op.kernel, op.dilation, strict=True)
    halo = [(tile - 1) * stride + (kernel - 1) * step + 1 for tile, stride, kernel, step in sides]
    return 4 * _CHANNELS * halo[0] * halo[1]


ALGORITHMS = (Tiled(),)
