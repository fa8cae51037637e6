"""Choose the tensors that are float32 in a program of float16 values or TF32 operands.

In float16 these tensors are float32, since their rounding would show:

    heads    what the network returns, or what boxes are decoded from, and what leads there from the
             last convolution or dense layer on
    narrow   maps of few channels: the errors of so few values hardly cancel in later sums

The tensors of an op are stored alike, so they are chosen in groups. The exceptions are a
convolution, whose input and output may differ, and a dense layer, which may write float32.

Convolutions with short sums keep all bits of their weights for the same reason. Some networks
run in float32 as a whole: if a layer reads only the signs of its input, rounding flips some of
them; YOLOv1 squares outputs to get the sides of boxes; and the smallest networks, all of whose maps
have few channels, would gain next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.backends.cuda.lower.lowered import Lowered
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Op, Tensor

_NARROW_MAP = 8  # channels at most
_SMALL = 48  # channels at most of every map of a small network
_TAIL = (ops.Activate, ops.AveragePool, ops.RegionOutput, ops.Reshape, ops.Softmax, ops.YoloOutput)


def choose_precision(lowered: Lowered) -> Lowered:
    """Record the tensors that stay float32; a program of nothing else becomes a float32 program."""
    plan, precision = lowered.plan, lowered.target.precision
    kept = floats(plan, precision) - lowered.target.scales.keys()
    if kept.issuperset(plan.tensors):  # then it runs by the same algorithms as a float32 program
        precision, kept = "float32", frozenset()
    return replace(lowered, target=replace(lowered.target, precision=precision, floats=kept))


def floats(plan: Plan, precision: str) -> frozenset[Tensor]:
    """Return the tensors that are float32 in a program of another precision."""
    if precision == "float32":
        return frozenset()
    if _is_brittle(plan) or (precision == "float16" and _is_small(plan)):
        return frozenset(plan.tensors) | plan.kept | {view.root for view in plan.views.values()}
    if precision != "float16":
        return frozenset()
    fixed = {plan.source, *(tensor for tensor in plan.tensors if tensor.is_state)}
    groups = [group for group in _groups(plan) if not group.tensors & fixed]
    multiplied = {op.src for op in plan.ops if isinstance(op, ops.MatMul)}
    narrow = [each.tensors for each in groups if _is_narrow(each) and not each.tensors & multiplied]
    inner = {op.src for op in plan.ops if isinstance(op, ops.Conv2d | ops.MatMul)}
    ends = _ends(plan)
    tails = [
        each.tensors
        for each in groups
        if each.tensors & ends
        and not each.tensors & inner
        and all(isinstance(op, _TAIL) for op in each.ops)
    ]
    narrow_ones = frozenset[Tensor]().union(*narrow)
    return narrow_ones.union(*tails, _pictures(plan, narrow_ones))


@dataclass(frozen=True)
class _Group:
    """Tensors that must be stored alike, and the ops that require it."""

    tensors: frozenset[Tensor]
    ops: tuple[Op, ...]


def _is_brittle(plan: Plan) -> bool:
    has_signs = any(isinstance(op, ops.Conv2d) and op.signed for op in plan.ops)
    return has_signs or any(isinstance(head, ops.GridHead) for head in plan.heads)


def _is_small(plan: Plan) -> bool:
    """Return whether the plan is a detector whose feature maps all have few channels."""
    maps = [op.out for op in plan.ops if isinstance(op, ops.Conv2d)]
    return bool(plan.heads) and all(tensor.shape.channels <= _SMALL for tensor in maps)


def _groups(plan: Plan) -> list[_Group]:
    members: dict[Tensor, set[Tensor]] = {}  # the group of each tensor; members share one set

    def join(tensors: Iterable[Tensor]) -> None:
        first, *others = (members.setdefault(each, {each}) for each in tensors)
        for other in others:
            if other is not first:
                small, first = sorted((first, other), key=len)
                first |= small
                members.update(dict.fromkeys(small, first))

    for op in plan.ops:
        for alike in _alike(op):
            join(alike)
    for tensor, view in plan.views.items():
        join((tensor, view.root))
    uniform: dict[int, list[Op]] = {}
    for op in plan.ops:
        if not _is_mixing(op):
            uniform.setdefault(id(members[op.out]), []).append(op)
    distinct = {id(group): group for group in members.values()}
    return [
        _Group(frozenset(group), tuple(uniform.get(key, ()))) for key, group in distinct.items()
    ]


def _is_mixing(op: Op) -> bool:
    """Return whether an op may read one type of values and write the other."""
    if isinstance(op, ops.MatMul | ops.Convert):
        return True
    return isinstance(op, ops.Conv2d) and not op.is_depthwise


def _alike(op: Op) -> list[tuple[Tensor, ...]]:
    if not _is_mixing(op):
        return [(op.out, *op.reads)]
    if isinstance(op, ops.Conv2d) and op.residual is not None:
        return [(op.src,), (op.out, op.residual)]
    return [(tensor,) for tensor in (op.out, *op.reads)]


def _is_narrow(group: _Group) -> bool:
    shapes = [tensor.shape for tensor in group.tensors]
    return all(shape.channels <= _NARROW_MAP and shape.area > 1 for shape in shapes)


def _ends(plan: Plan) -> frozenset[Tensor]:
    read = {tensor for op in plan.ops for tensor in op.reads}
    last = {tensor for tensor in plan.outputs if tensor not in read}
    return frozenset(last | {head.src for head in plan.heads})


def _pictures(plan: Plan, narrow: frozenset[Tensor]) -> frozenset[Tensor]:
    """Return the source if only narrow maps are computed from it."""
    readers = [op for op in plan.ops if plan.source in op.reads]
    is_exact = all(_is_mixing(op) and op.out in narrow for op in readers)
    return frozenset({plan.source}) if readers and is_exact else frozenset()
