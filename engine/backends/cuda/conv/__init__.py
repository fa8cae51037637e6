"""Convolution algorithms, one file each, and the choice among them.

Each offers what algorithm.py says. The choice is the forced one, else what was measured, else a
rule of thumb. Where a product comes first, or a pool, [yolo] or an upsampling follows, few take it
in; the others run apart from it, under names of their own.
"""

from __future__ import annotations

from engine.backends.cuda.conv import (
    depthwise,
    depthwise_strips,
    direct,
    dot,
    few_channels,
    geometry,
    im2col_gemm,
    implicit_gemm,
    pointwise,
    sm90_direct_tiles,
    sm90_pingpong,
    sm90_rgb_stem,
    sm90_splitk,
    sm90_swapped,
    sm90_swapped_direct,
    strided_batched,
    tiled,
    unfused,
    winograd,
    xnor,
)
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target, is_narrow, runs
from engine.backends.cuda.ops.scaled_conv import ScaledConv2d
from engine.plan import ops

# The first that supports a convolution takes it where no matrix units can.
ALGORITHMS: dict[str, Algorithm] = {
    "xnor": xnor,
    "depthwise": depthwise,
    "dot": dot,
    "pointwise": pointwise,
    "strided_batched": strided_batched,
    "im2col_gemm": im2col_gemm,
    "winograd": winograd,
    "tiled": tiled,
    "direct": direct,
    "depthwise_strips": depthwise_strips,
    "sm90_rgb_stem": sm90_rgb_stem,
    **sm90_splitk.VARIANTS,
    **sm90_pingpong.VARIANTS,
    **sm90_swapped.VARIANTS,
    **sm90_direct_tiles.VARIANTS,
    **sm90_swapped_direct.VARIANTS,
    **few_channels.VARIANTS,
    **implicit_gemm.VARIANTS,
}
# What can leave its sums for a gate behind it.
LEAVES_SUMS = {"depthwise": depthwise, "depthwise_strips": depthwise_strips}
_WITH_PRODUCT = frozenset({*few_channels.VARIANTS, *implicit_gemm.VARIANTS})
_WITH_POOL = _WITH_PRODUCT | {"sm90_rgb_stem"}
_WITH_YOLO = _WITH_PRODUCT | {*sm90_splitk.VARIANTS, *sm90_pingpong.VARIANTS}
ALGORITHMS |= {name + unfused.SUFFIX: unfused.Apart(each) for name, each in ALGORITHMS.items()}
_SHORT = 450  # products in a value: where it has more, the best kernel for them and a pool win
_FEW = 1 << 14  # values of a channel: where there are fewer, another launch takes longer

# What may read halves and write floats or the reverse, the first alone, and what keeps the bits of
# weights where few products are summed. See floats.py.
_EVERYWHERE = frozenset({"direct", *few_channels.VARIANTS, *implicit_gemm.VARIANTS})
_WRITE_FLOATS = _EVERYWHERE | {
    *("dot", "pointwise", "strided_batched", "im2col_gemm"),
    *sm90_splitk.VARIANTS,
    *sm90_pingpong.VARIANTS,
    *sm90_swapped.VARIANTS,
    *sm90_direct_tiles.VARIANTS,
    *sm90_swapped_direct.VARIANTS,
}
_EXACT = _EVERYWHERE | {"tiled", "sm90_rgb_stem", *LEAVES_SUMS}


def candidates(target: Target, op: ops.Conv2d) -> tuple[str, ...]:
    """Every algorithm that can run this convolution."""
    target = target.of(op)
    return tuple(name for name in ALGORITHMS if _can_run(name, target, op))


def _can_run(name: str, target: Target, op: ops.Conv2d) -> bool:
    if name not in ALGORITHMS:
        return False
    if name.endswith(unfused.SUFFIX):
        inner = name.removesuffix(unfused.SUFFIX)
        return unfused.has_more(op) and _can_run(inner, *unfused.alone(target, op))
    if isinstance(op, ScaledConv2d) and name not in _WITH_PRODUCT:
        return False
    if op.yolo is not None and name not in _WITH_YOLO:
        return False
    if op.upsample is not None and name not in sm90_splitk.VARIANTS:
        return False
    if op.pool is not None and not (name in _WITH_POOL and op.pools_quads):
        return False
    if op.src in target.floats and name not in _EVERYWHERE:
        return False
    if op.out in target.floats and name not in _WRITE_FLOATS:
        return False
    if target.bytes_of(op.src) == 2 and is_narrow(op) and name not in _EXACT:
        return False
    return ALGORITHMS[name].supports(target, op)


def signature(target: Target, op: ops.Conv2d) -> str:
    """What a measurement depends on, so that it serves every layer of the same shape."""
    target = target.of(op)
    source = "x".join(map(str, op.src.shape.sides))
    weight = "x".join(map(str, op.weight.shape))
    window = ",".join(map(str, (*op.stride, *op.padding, *op.dilation, op.groups)))
    extras = f"{int(op.signed)}{int(op.bias is not None)}{int(op.residual is not None)}"
    extras += "".join(str(target.bytes_of(each)) for each in (op.src, op.out))
    kinds = f"{op.activation},{op.last_activation}"
    kinds += ",pool" if op.pool else ",yolo" if op.yolo else ",upsample" if op.upsample else ""
    kinds += ",scaled" if isinstance(op, ScaledConv2d) else ""
    rows = target.rows(op.out)
    return f"{target.precision} {rows} {source} {weight} {window} {extras} {kinds}"


def choice(target: Target, op: ops.Conv2d) -> str:
    """The name of the algorithm that runs this convolution."""
    target = target.of(op)
    for name in (target.algorithm, target.measured.get(signature(target, op))):
        for way in () if name is None else (name, name + unfused.SUFFIX):
            if _can_run(way, target, op):
                return way
    return rule_of_thumb(target, op)


def rule_of_thumb(target: Target, op: ops.Conv2d) -> str:
    """What is likely to be fastest, for a convolution that was not measured."""
    target = target.of(op)
    if unfused.has_more(op) and not _is_better_whole(target, op):
        return rule_of_thumb(*unfused.alone(target, op)) + unfused.SUFFIX
    if target.rows(op.out) * op.out.shape.area <= 8 and _can_run("dot", target, op):
        return "dot"
    for best_of in (sm90_splitk.best, implicit_gemm.best, few_channels.best):
        best = best_of(target, op)
        if best is not None and _can_run(best, target, op):
            return best
    if unfused.has_more(op):
        return rule_of_thumb(*unfused.alone(target, op)) + unfused.SUFFIX
    return candidates(target, op)[0]


def family(name: str) -> object:
    """What the variants of an algorithm that have estimates share; None for other algorithms."""
    inner = ALGORITHMS[name.removesuffix(unfused.SUFFIX)]
    return (type(inner), name.endswith(unfused.SUFFIX)) if hasattr(inner, "estimate") else None


def columns(name: str) -> int:
    """Filters that a block of Hopper's multiplies at once; 0 of other algorithms."""
    return getattr(ALGORITHMS.get(name.removesuffix(unfused.SUFFIX)), "columns", 0)


def tile(target: Target, op: ops.Conv2d, name: str) -> Tile | None:
    """What has to be compiled for an algorithm alone."""
    if name.endswith(unfused.SUFFIX):
        return tile(*unfused.alone(target, op), name.removesuffix(unfused.SUFFIX))
    algorithm = ALGORITHMS[name]
    made: Tile | None = algorithm.tile(target.of(op), op) if hasattr(algorithm, "tile") else None
    return made


def _is_better_whole(target: Target, op: ops.Conv2d) -> bool:
    """Whether a kernel that does the rest as well should be faster than two kernels."""
    able = any(_can_run(name, target, op) for name in _WITH_YOLO)
    is_short = op.pool is None or geometry.depth(op) <= _SHORT
    return able and (is_short or target.rows(op.out) * op.grid.area <= _FEW)


def _workspace(target: Target, op: ops.Conv2d) -> int:
    return ALGORITHMS[choice(target, op)].workspace(target, op)


def _prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    return ALGORITHMS[choice(target, op)].prepare(target, op, constants)


@runs(ScaledConv2d, workspace=_workspace, prepare=_prepare)
@runs(ops.Conv2d, workspace=_workspace, prepare=_prepare)
def conv2d(gpu: Gpu, op: ops.Conv2d) -> None:
    ALGORITHMS[choice(gpu.target, op)].enqueue(gpu, op)
