"""Convolution algorithms, one file each, and the choice among them.

Each offers what algorithm.py says. The choice is the forced one, else what was measured, else a
rule of thumb. Few algorithms fuse a multiplication before the convolution, or a pool, [yolo] or an
upsampling after it; the others run unfused, which is a field of the choice.
"""

from __future__ import annotations

from engine.backends.cuda.conv import (
    depthwise,
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
    strided_batched,
    tiled,
    unfused,
    xnor,
)
from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.choice import Choice
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target, is_narrow
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
    "tiled": tiled,
    "direct": direct,
    "sm90_rgb_stem": sm90_rgb_stem,
    **sm90_splitk.VARIANTS,
    **sm90_pingpong.VARIANTS,
    **sm90_swapped.VARIANTS,
    **sm90_direct_tiles.VARIANTS,
    **few_channels.VARIANTS,
    **implicit_gemm.VARIANTS,
}
# What can leave its sums for a gate behind it.
LEAVES_SUMS = {"depthwise": depthwise}
_WITH_PRODUCT = frozenset({*few_channels.VARIANTS, *implicit_gemm.VARIANTS})
_WITH_POOL = _WITH_PRODUCT | {"sm90_rgb_stem"}
_WITH_YOLO = _WITH_PRODUCT | {*sm90_splitk.VARIANTS, *sm90_pingpong.VARIANTS}
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
}
_EXACT = _EVERYWHERE | {"tiled", "sm90_rgb_stem", *LEAVES_SUMS}


def candidates(target: Target, op: ops.Conv2d) -> tuple[Choice, ...]:
    """Return every choice that can run this convolution."""
    target = target.of(op)
    choices = (Choice(name, unfused) for unfused in (False, True) for name in ALGORITHMS)
    return tuple(choice for choice in choices if _can_run(choice, target, op))


def _can_run(choice: Choice, target: Target, op: ops.Conv2d) -> bool:
    name = choice.algorithm
    if name not in ALGORITHMS:
        return False
    if choice.unfused:
        inner = Choice(name)
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


def choose(target: Target, op: ops.Conv2d) -> Choice:
    """Return the forced algorithm, else the measured one, else the rule of thumb's."""
    target = target.of(op)
    forced = None if target.algorithm is None else Choice.parse(target.algorithm)
    for choice in (forced, target.measured.get(signature(target, op))):
        for each in () if choice is None else (choice, choice._replace(unfused=True)):
            if _can_run(each, target, op):
                return each
    return rule_of_thumb(target, op)


def rule_of_thumb(target: Target, op: ops.Conv2d) -> Choice:
    """Return what is likely to be fastest, for a convolution that was not measured."""
    target = target.of(op)
    if unfused.has_more(op) and not _is_better_whole(target, op):
        return _unfused_rule_of_thumb(target, op)
    if target.rows(op.out) * op.out.shape.area <= 8 and _can_run(Choice("dot"), target, op):
        return Choice("dot")
    for best_of in (sm90_splitk.best, implicit_gemm.best, few_channels.best):
        best = best_of(target, op)
        if best is not None and _can_run(Choice(best), target, op):
            return Choice(best)
    if unfused.has_more(op):
        return _unfused_rule_of_thumb(target, op)
    return candidates(target, op)[0]


def _unfused_rule_of_thumb(target: Target, op: ops.Conv2d) -> Choice:
    return rule_of_thumb(*unfused.alone(target, op))._replace(unfused=True)


def _is_better_whole(target: Target, op: ops.Conv2d) -> bool:
    """Whether a kernel that does the rest as well should be faster than two kernels."""
    able = any(_can_run(Choice(name), target, op) for name in _WITH_YOLO)
    is_short = op.pool is None or geometry.depth(op) <= _SHORT
    return able and (is_short or target.rows(op.out) * op.grid.area <= _FEW)


def family(choice: Choice) -> object:
    """Return what the variants of an algorithm that have estimates share; None for others."""
    algorithm = ALGORITHMS[choice.algorithm]
    return (type(algorithm), choice.unfused) if hasattr(algorithm, "estimate") else None


def columns(choice: Choice) -> int:
    """Return the filters that a CTA of an sm90 kernel multiplies at once; 0 for others."""
    return getattr(ALGORITHMS.get(choice.algorithm), "columns", 0)


def tile(target: Target, op: ops.Conv2d, choice: Choice) -> Tile | None:
    """Return the kernel to compile for this choice; None where all its kernels are compiled."""
    if choice.unfused:
        return tile(*unfused.alone(target, op), choice._replace(unfused=False))
    algorithm = ALGORITHMS[choice.algorithm]
    made: Tile | None = algorithm.tile(target.of(op), op) if hasattr(algorithm, "tile") else None
    return made


def workspace(target: Target, op: ops.Conv2d, choice: Choice) -> int:
    """Return the bytes of workspace that the choice needs."""
    return _runner(choice).workspace(target, op)


def prepare(target: Target, op: ops.Conv2d, choice: Choice, constants: Arrays) -> Arrays:
    """Return the arrays to upload, in the layouts of the choice."""
    return _runner(choice).prepare(target, op, constants)


def estimate(target: Target, op: ops.Conv2d, choice: Choice) -> float:
    """Return the cycles that a choice of some family should take."""
    cycles: float = _runner(choice).estimate(target, op)  # type: ignore[attr-defined]
    return cycles


def enqueue(gpu: Gpu, op: ops.Conv2d, choice: Choice) -> None:
    """Enqueue the kernels of the choice."""
    _runner(choice).enqueue(gpu, op)


def _runner(choice: Choice) -> Algorithm:
    algorithm = ALGORITHMS[choice.algorithm]
    return unfused.Unfused(algorithm) if choice.unfused else algorithm
