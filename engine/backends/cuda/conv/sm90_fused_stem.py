"""The two convolutions that open many networks, on Hopper: what lies between never leaves a block.

A picture's first map is the largest of its network. Where the next convolution halves it, writing
it and reading it again take longer than both convolutions together.
"""

from __future__ import annotations

import ctypes

from engine.backends.cuda.conv import sm90_fused_pair, sm90_rgb_stem, sm90_splitk
from engine.backends.cuda.conv.sm90_fused_pair import BETWEEN, FILTERS, WIDE, ChainTile
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops

_HIGH = 15  # lines of a block
_TEAMS = 4
_ROOM = (4 * 9 << 10) + (5 << 10)  # of a team: four patches of the map, and what makes them
_PIXEL = 4  # values of the picture


class Opening(ctypes.Structure):
    """The struct of the same name in kernels/conv/sm90/sm90_fused_stem.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("bias", "weight", "picture")),
        *((name, ctypes.c_int) for name in ("height", "width")),
    )


def tile(target: Target, chain: ops.Chain) -> ChainTile:
    first, second = chain.links
    made = sm90_rgb_stem.tile(target, first)
    return ChainTile(
        *(WIDE * _HIGH, FILTERS, BETWEEN, 1, 1, 1, *sm90_splitk.epilogue_params(target, second)),
        kernel="sm90_fused_stem",
        teams=_TEAMS,
        stride=2,
        first_kind=made.kind,
        first_columns=made.columns,
        more=(("PARTS", made.parts),),
        room=_ROOM,
        first_bytes=made.weight_bytes,
    )


def supports(target: Target, chain: ops.Chain) -> bool:
    first, second = chain.links
    if not sm90_fused_pair.supports(target, first, second) or not sm90_rgb_stem.supports(
        target, first
    ):
        return False
    if not first.is_bare or not second.is_bare or second.stride != (2, 2):
        return False
    return (first.kernel, first.stride, first.padding) == ((3, 3), (1, 1), (1, 1, 1, 1))


def prepare(target: Target, chain: ops.Chain, first: Arrays, second: Arrays) -> Arrays:
    made = sm90_rgb_stem.prepare(target, chain.links[0], first)
    return sm90_fused_pair.prepare(tile(target, chain), chain.links[1], second, made)


def enqueue(gpu: Gpu, chain: ops.Chain) -> None:
    assert gpu.pitch(chain.src) == _PIXEL, "of pictures in colours; see memory.py"
    picture = gpu[chain.src], *chain.src.shape.sides[1:]
    opening = Opening(*sm90_fused_pair.first_arrays(gpu, chain), *picture)
    sm90_fused_pair.enqueue(gpu, chain, tile(gpu.target, chain), opening)
