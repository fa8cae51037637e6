"""Fuse ops into the convolutions of one card.

The product of a feature map and a factor per channel is folded into the 1 x 1 convolution that
reads it: in a squeeze-and-excite block it is the widest map, and reading it bounds the convolution.
A convolution rounds its own results to int8. Two convolutions become one where a kernel computes
both: the map between them is never stored.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from engine.backends.cuda import conv
from engine.backends.cuda.conv import sm90_fused, unfused
from engine.backends.cuda.conv.algorithm import KeepingConv2d, ScaledConv2d
from engine.backends.cuda.conv.tensor_cores import EIGHT
from engine.backends.cuda.lower import memory_layout
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.lower.squeeze_excite import scales
from engine.backends.cuda.ops.target import Target
from engine.passes.fuse_pool import can_take
from engine.passes.usage import Intermediates, join_neighbours
from engine.plan.build import Plan
from engine.plan.ops import Add, Chain, Conv2d, Convert, MaxPool, Multiply, Op, Tensor


def fold_factors(lowered: Lowered) -> Lowered:
    """Fold Multiply into the ScaledConv2d after it, unless a gate multiplies as well."""
    plan, target = lowered.plan, lowered.target
    by_gates = {op for gate, op in pairwise(plan.ops) if scales(target, gate, op)}

    def join(before: Op, op: Op) -> ScaledConv2d | None:
        if not isinstance(before, Multiply) or not isinstance(op, Conv2d) or before in by_gates:
            return None
        if op.src != before.out or not _fits(before, op):
            return None
        scaled = ScaledConv2d.of(before, op)
        are_alike = target.bytes_of(scaled.src) == target.bytes_of(scaled.factor)
        return scaled if are_alike and _is_fusible(target, scaled) else None

    return replace(lowered, plan=join_neighbours(plan, join))


def _fits(multiply: Multiply, op: Conv2d) -> bool:
    """Return whether whole channels are scaled, and the convolution reads each value once."""
    src, factor = multiply.src, multiply.factor
    return (
        multiply.activation == "linear"
        and factor.shape.sides == (src.shape.channels, 1, 1)
        and factor.steps == src.steps
        and src.shape.area > 1
        and op.is_pointwise
        and op.groups == 1
        and not unfused.has_more(op)
    )


def _is_fusible(target: Target, op: Conv2d) -> bool:
    return any(not choice.unfused for choice in conv.candidates(target, op))


def fold_pools(lowered: Lowered) -> Lowered:
    """Fold MaxPool into a KeepingConv2d, which also stores the pool's input for other ops."""
    plan, target = lowered.plan, lowered.target
    made: list[Op] = []
    places: dict[Tensor, int] = {}  # in `made`, of the convolutions by what they write
    for op in plan.ops:
        if isinstance(op, MaxPool) and op.src in places:
            place = places[op.src]
            before = made[place]
            if type(before) is Conv2d and _halves(before, op):
                keeping = KeepingConv2d.of(before, op)
                if _is_fusible(target, keeping):
                    made[place] = keeping
                    continue
        if type(op) is Conv2d:
            places[op.out] = len(made)
        made.append(op)
    return replace(lowered, plan=replace(plan, ops=tuple(made)))


def _halves(op: Conv2d, pool: MaxPool) -> bool:
    """Return whether the windows of a pool cover the output of a convolution, once each."""
    src, out = pool.src.shape, pool.out.shape
    return can_take(op, pool) and 2 * out.height == src.height and 2 * out.width == src.width


def fold_rounding(lowered: Lowered) -> Lowered:
    """Fold Convert to int8 into the Conv2d before it."""
    plan, target = lowered.plan, lowered.target

    def join(before: Op, op: Op) -> Conv2d | None:
        if not isinstance(before, Conv2d) or not isinstance(op, Convert):
            return None
        if op.out not in target.scales or before.residual is not None:
            return None
        made = before.writing(op.out)
        return made if _is_fusible(target, made) else None

    return replace(lowered, plan=join_neighbours(plan, join))


def fold_conversions(lowered: Lowered) -> Lowered:
    """Fold the Converts around an Add into it, where a residual network halves its maps.

    The first source is float. It has as many pixels as the result, the second four times as many.
    """
    plan, target = lowered.plan, lowered.target
    intermediates = Intermediates(plan)
    made: list[Op] = []
    for op in plan.ops:
        before, add = (made[-2], made[-1]) if len(made) > 1 else (None, None)
        if (
            isinstance(op, Convert)
            and isinstance(add, Add)
            and isinstance(before, Convert)
            and op.src == add.out
            and op.out in target.scales
            and before.out in intermediates
            and add.out in intermediates
            and _adds_quarters(target, add, before)
        ):
            made[-2:] = [replace(add, out=op.out, sources=(add.sources[0], before.src))]
        else:
            made.append(op)
    return replace(lowered, plan=replace(plan, ops=tuple(made)))


def _adds_quarters(target: Target, add: Add, convert: Convert) -> bool:
    a, floats = add.sources[0], target.floats | target.scales.keys() | target.misaligned
    return (
        _is_of_quarters(add)
        and add.sources[1] == convert.out
        and a not in floats
        and target.precision == "float16"
        and a.shape.channels % (4 * EIGHT) == 0
    )


def _is_of_quarters(add: Add) -> bool:
    """Return whether it adds a map with four times the area to one like the result."""
    if add.weights is not None or len(add.sources) != 2:
        return False
    first, second = (source.shape for source in add.sources)
    return first == add.out.shape and second.area == 4 * first.area


def fold_quarters(lowered: Lowered) -> Lowered:
    """Fold Add of a map with four times the area into Conv2d, as its residual."""
    target = lowered.target

    def join(before: Op, op: Op) -> Conv2d | None:
        if type(before) is not Conv2d or not isinstance(op, Add) or not _is_of_quarters(op):
            return None
        sums, more = op.sources
        has_all = 4 * more.shape.channels >= sums.shape.channels
        are_alike = {target.bytes_of(each) for each in (sums, more, op.out)} in ({2}, {4})
        if sums != before.out or not (before.is_bare and has_all and are_alike):
            return None
        made = before.then(op)
        return made if _is_fusible(target, made) else None

    return replace(lowered, plan=join_neighbours(lowered.plan, join))


def fuse_chains(lowered: Lowered) -> Lowered:
    """Fuse two Conv2d into a Chain, unless one algorithm is forced on every convolution."""
    target = lowered.target
    if target.algorithm is not None:
        return lowered
    pitches = memory_layout.pitches(lowered.plan)

    def join(first: Op, second: Op) -> Chain | None:
        if not isinstance(first, Conv2d) or not isinstance(second, Conv2d):
            return None
        if second.src != first.out:
            return None
        chain = Chain(second.out, (first, second))
        channels = first.src.shape.channels
        # The kernel for few channels reads whole words, to which only a picture is padded.
        is_readable = not channels % EIGHT or pitches.get(first.src, channels) > channels
        return chain if is_readable and sm90_fused.choose(target, chain) else None

    return replace(lowered, plan=join_neighbours(lowered.plan, join))


def split_chains(plan: Plan) -> Plan:
    """Return the plan with the convolutions of every chain one by one."""
    links = (op.links if isinstance(op, Chain) else (op,) for op in plan.ops)
    return replace(plan, ops=tuple(op for each in links for op in each))
