"""Convolution from shared memory: a block loads its tile of the map with the halo around it."""

from __future__ import annotations

from engine.backends.cuda.conv import direct, geometry
from engine.backends.cuda.ops.gpu import Gpu, Target
from engine.plan import ops

CHANNELS, FILTERS = 4, 8  # TILED_CHANNELS, TILED_FILTERS of kernels/tiled.cu
PLANE, LINE = (8, 16), (1, 128)  # tiles of a map and of a 1-D signal
SHARED_BYTES = 48 << 10  # what every device grants without asking

workspace = direct.workspace
prepare = direct.prepare


def _tile(op: ops.Conv2d) -> tuple[int, int]:
    return LINE if op.out.shape.height == 1 else PLANE


def _shared_bytes(op: ops.Conv2d) -> int:
    sides = zip(_tile(op), op.stride, op.kernel, op.dilation, strict=True)
    halo = [(tile - 1) * stride + (kernel - 1) * step + 1 for tile, stride, kernel, step in sides]
    return 4 * CHANNELS * halo[0] * halo[1]


def supports(target: Target, op: ops.Conv2d) -> bool:
    return not op.signed and _shared_bytes(op) <= SHARED_BYTES


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    height, width = _tile(op)
    filters = op.weight.shape[0] // op.groups
    out = op.out.shape
    tiles = gpu.rows(op.out) * -(-out.height // height) * -(-out.width // width)
    blocks = tiles * op.groups * -(-filters // FILTERS)
    pointer, pitch = geometry.residual(gpu, op)
    gpu.launch_grid(
        "tiled",
        (min(blocks, 1 << 20), 1, 1),
        height * width,
        *(gpu[op.src], gpu.array(op, "weight"), gpu.array(op, "bias"), pointer, gpu[op.out]),
        *(gpu.rows(op.out), op.groups, op.weight.shape[1], filters),
        *(*geometry.maps(op), gpu.pitch(op.src), pitch, gpu.pitch(op.out)),
        *(*geometry.window(op), *geometry.kinds(op), height, width),
        shared=_shared_bytes(op),
    )
