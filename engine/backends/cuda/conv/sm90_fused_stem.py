"""The first two convolutions of many networks on Hopper; the map between stays in shared memory.

That map is the largest of its network. Where the second convolution halves it, writing it and
reading it again take longer than both convolutions.
"""

from __future__ import annotations

from engine.backends.cuda.conv import sm90_base, sm90_fused_pair
from engine.backends.cuda.conv.kernel_args import struct
from engine.backends.cuda.conv.sm90_fused_pair import BETWEEN, FILTERS, WIDTH, FusedTile
from engine.backends.cuda.conv.sm90_rgb_stem import RGB_STEM
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.backends.cuda.ops.target import Target
from engine.plan import ops

_HEIGHT = 15  # lines of a block
_TEAMS = 4
_TEAM_BYTES = (4 * 9 << 10) + (5 << 10)  # four patches of the map between, and their input
_PITCH = 4  # values of a pixel of the picture


Args = struct("sm90_fused_stem.cu", "StemArgs")


def tile(target: Target, chain: ops.Chain) -> FusedTile:
    first, second = chain.links
    stem = RGB_STEM.tile(target, first)
    return FusedTile(
        rows=WIDTH * _HEIGHT,
        columns=FILTERS,
        depth=BETWEEN,
        stages=1,
        consumers=1,
        blocks=1,
        kernel="sm90_fused_stem",
        teams=_TEAMS,
        stride=2,
        first_kind=stem.kind,
        first_columns=stem.columns,
        first_bytes=stem.weight_bytes,
        team_bytes=_TEAM_BYTES,
        more_defines=(("PARTS", stem.parts),),
        **sm90_base.epilogue_params(target, second),
    )


def supports(target: Target, chain: ops.Chain) -> bool:
    first, second = chain.links
    if not sm90_fused_pair.supports(target, first, second) or not RGB_STEM.supports(target, first):
        return False
    if not first.is_bare or not second.is_bare or second.stride != (2, 2):
        return False
    return (first.kernel, first.stride, first.padding) == ((3, 3), (1, 1), (1, 1, 1, 1))


def prepare(target: Target, chain: ops.Chain, first: Arrays, second: Arrays) -> Arrays:
    stem = RGB_STEM.prepare(target, chain.links[0], first)
    return sm90_fused_pair.prepare(tile(target, chain), chain.links[1], second, stem)


def enqueue(gpu: Gpu, chain: ops.Chain) -> None:
    assert gpu.pitch(chain.src) == _PITCH, "only pictures in colour; see memory_layout.py"
    first = Args(
        bias=gpu.array(chain, "first_bias"),
        weight=gpu.array(chain, "first_weight"),
        picture=gpu[chain.src],
        height=chain.src.shape.height,
        width=chain.src.shape.width,
    )
    sm90_fused_pair.enqueue(gpu, chain, tile(gpu.target, chain), first)
