"""A residual block of few channels on Hopper: 1x1, 3x3, and the addition of the block's input.

On large maps memory bounds it. Here the input is loaded once, for the products and as the residual,
and the map between the convolutions stays in shared memory.
"""

from __future__ import annotations

from dataclasses import replace

from engine.backends.cuda.conv import kernel_args, sm90_base, sm90_fused_pair
from engine.backends.cuda.conv.kernel_args import struct
from engine.backends.cuda.conv.sm90_fused_pair import BETWEEN, FILTERS, TAPS, WIDTH, FusedTile
from engine.backends.cuda.driver import launch
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.backends.cuda.ops.target import Target
from engine.plan import ops

_HEIGHT = 16  # lines of a block
_TEAMS = 3
_CHANNELS = 64  # of input and output
_GROUPS = 3  # of 64 pixels, in a patch
_TEAM_BYTES = _GROUPS * 64 * (2 * 128 + 64)  # two patches, and the map between


Args = struct("sm90_fused_bottleneck.cu", "FirstArgs")


def tile(target: Target, chain: ops.Chain) -> FusedTile:
    first, second = chain.links
    return FusedTile(
        rows=WIDTH * _HEIGHT,
        columns=FILTERS,
        depth=_CHANNELS,
        stages=1,
        consumers=1,
        blocks=1,
        kernel="sm90_fused_bottleneck",
        teams=_TEAMS,
        first_kind=kernel_args.kinds(first)[0],
        first_bytes=BETWEEN * _CHANNELS * 2,
        team_bytes=_TEAM_BYTES,
        **sm90_base.epilogue_params(target, second),
    )


def supports(target: Target, chain: ops.Chain) -> bool:
    first, second = chain.links
    if not sm90_fused_pair.supports(target, first, second):
        return False
    if not sm90_base.can_run(target, first) or not first.is_pointwise or not first.is_bare:
        return False
    if target.bytes_of(first.src) != 2 or first.src.shape.channels != _CHANNELS:
        return False
    return second.stride == (1, 1) and second.residual == first.src


def prepare(target: Target, chain: ops.Chain, first: Arrays, second: Arrays) -> Arrays:
    made = tile(target, chain)
    before = sm90_base.prepare(replace(made, columns=BETWEEN), chain.links[0], first)
    return sm90_fused_pair.prepare(made, chain.links[1], second, before)


def enqueue(gpu: Gpu, chain: ops.Chain) -> None:
    made = tile(gpu.target, chain)
    boxes = launch.boxes_map(
        sm90_base.source(gpu, chain.links[0], made),
        height=_HEIGHT + TAPS[0] - 1,
        width=WIDTH + TAPS[1] - 1,
        channels=_CHANNELS,
    )
    first = Args(bias=gpu.array(chain, "first_bias"), weight=gpu.array(chain, "first_weight"))
    sm90_fused_pair.enqueue(gpu, chain, made, boxes, first)
