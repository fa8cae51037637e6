"""A residual block of few channels on Hopper: 1 x 1, 3 x 3, and what both began with added.

On large maps memory bounds it. Here the map comes once, for the products and as the residual, and
what lies between the convolutions never leaves a block.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

from engine.backends.cuda.conv import geometry, sm90_fused_pair, sm90_splitk
from engine.backends.cuda.conv.sm90_fused_pair import BETWEEN, FILTERS, TAPS, WIDE, ChainTile
from engine.backends.cuda.driver import launch
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops

_HIGH = 16  # lines of a block
_TEAMS = 3
_CHANNELS = 64  # of what comes and goes
_GROUPS = 3  # of 64 pixels: a patch's
_ROOM = _GROUPS * 64 * (2 * 128 + 64)  # of a team: two patches, and the map between


class Squeeze(ctypes.Structure):
    """The struct of the same name in kernels/conv/sm90/sm90_fused_bottleneck.cu."""

    _fields_ = (("bias", ctypes.c_void_p), ("weight", ctypes.c_void_p))


def tile(target: Target, chain: ops.Chain) -> ChainTile:
    first, second = chain.links
    return ChainTile(
        *(WIDE * _HIGH, FILTERS, _CHANNELS, 1, 1, 1, *sm90_splitk.epilogue_params(target, second)),
        kernel="sm90_fused_bottleneck",
        teams=_TEAMS,
        first_kind=geometry.kinds(first)[0],
        room=_ROOM,
        first_bytes=BETWEEN * _CHANNELS * 2,
    )


def supports(target: Target, chain: ops.Chain) -> bool:
    first, second = chain.links
    if not sm90_fused_pair.supports(target, first, second) or not sm90_splitk.can_run(
        target, first
    ):
        return False
    if not first.is_pointwise or not first.is_bare or second.stride != (1, 1):
        return False
    if target.bytes_of(first.src) != 2 or first.src.shape.channels != _CHANNELS:
        return False
    return second.residual == first.src


def prepare(target: Target, chain: ops.Chain, first: Arrays, second: Arrays) -> Arrays:
    made = tile(target, chain)
    before = sm90_splitk.prepare(replace(made, columns=BETWEEN), chain.links[0], first)
    return sm90_fused_pair.prepare(made, chain.links[1], second, before)


def enqueue(gpu: Gpu, chain: ops.Chain) -> None:
    made = tile(gpu.target, chain)
    boxes = launch.boxes_map(
        sm90_splitk.source(gpu, chain.links[0], made),
        height=_HIGH + TAPS[0] - 1,
        width=WIDE + TAPS[1] - 1,
        channels=_CHANNELS,
    )
    squeeze = Squeeze(*sm90_fused_pair.first_arrays(gpu, chain))
    sm90_fused_pair.enqueue(gpu, chain, made, boxes, squeeze)
