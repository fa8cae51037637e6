"""Where a program of halves, or of tf32 products, computes with floats all the same.

Of halves these tensors are floats, since their rounding would show:

    heads    what the network hands back, or boxes are decoded from, and what leads there from the
             last convolution or dense layer on
    narrow   maps of few channels: the errors of so few values hardly cancel in the sums that follow

Tensors of an op are stored alike, so they are chosen in groups. The exceptions are a convolution,
which may read one kind and write the other, and a dense layer, which may write floats.

Convolutions of few products keep the bits of their weights for the same reason. Some networks run
in floats as a whole: where a layer reads but the signs of its input, rounding turns some of them;
YOLOv1's boxes have the squares of what the network says as sides; and the smallest networks, all of
whose maps have few channels, would save next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.backends.cuda.ops.scaled_conv import ScaledConv2d
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Op, Tensor

_NARROW_MAP = 8  # channels at most
_SMALL = 48  # channels at most of every map of a small network
_TAIL = (ops.Activate, ops.AveragePool, ops.RegionOutput, ops.Reshape, ops.Softmax, ops.YoloOutput)


def floats(plan: Plan, precision: str) -> frozenset[Tensor]:
    """Tensors that are floats though `precision` says otherwise."""
    if precision == "float32":
        return frozenset()
    if _is_brittle(plan) or (precision == "float16" and _is_small(plan)):
        return frozenset(plan.tensors) | plan.kept | {view.root for view in plan.views.values()}
    if precision != "float16":
        return frozenset()
    fixed = _fixed(plan)
    groups = [group for group in _groups(plan) if not group.tensors & fixed]
    multiplied = {op.src for op in plan.ops if isinstance(op, ops.MatMul)}
    narrow = [each.tensors for each in groups if _is_narrow(each) and not each.tensors & multiplied]
    inner = {op.src for op in plan.ops if isinstance(op, ops.Conv2d | ops.MatMul)}
    ends = _ends(plan)
    tails = [
        each.tensors
        for each in groups
        if each.tensors & ends and not each.tensors & inner and _is_tail(each)
    ]
    narrow_ones = frozenset[Tensor]().union(*narrow)
    return narrow_ones.union(*tails, _pictures(plan, narrow_ones))


@dataclass(frozen=True)
class _Group:
    """Tensors that are stored alike, and the ops that make them so."""

    tensors: frozenset[Tensor]
    ops: tuple[Op, ...]


def _is_brittle(plan: Plan) -> bool:
    has_signs = any(isinstance(op, ops.Conv2d) and op.signed for op in plan.ops)
    return has_signs or any(isinstance(head, ops.GridHead) for head in plan.heads)


def _is_small(plan: Plan) -> bool:
    """Whether a detector has few channels throughout."""
    maps = [op.out for op in plan.ops if isinstance(op, ops.Conv2d)]
    return bool(plan.heads) and all(tensor.shape.channels <= _SMALL for tensor in maps)


def _groups(plan: Plan) -> list[_Group]:
    members: dict[Tensor, set[Tensor]] = {}  # each tensor's group, one object for all of it

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
    """Whether it may read one kind of values and write the other."""
    return isinstance(op, ops.MatMul) or (isinstance(op, ops.Conv2d) and not op.is_depthwise)


def _alike(op: Op) -> list[tuple[Tensor, ...]]:
    if not _is_mixing(op):
        return [(op.out, *op.reads)]
    if isinstance(op, ScaledConv2d):
        return [(op.src, op.factor), (op.out, op.residual or op.out)]
    if isinstance(op, ops.Conv2d) and op.residual is not None:
        return [(op.src,), (op.out, op.residual)]
    return [(tensor,) for tensor in (op.out, *op.reads)]


def _fixed(plan: Plan) -> frozenset[Tensor]:
    """What outlives a run or is brought in."""
    return frozenset({plan.source, *(tensor for tensor in plan.tensors if tensor.is_state)})


def _is_narrow(group: _Group) -> bool:
    shapes = [tensor.shape for tensor in group.tensors]
    return all(shape.channels <= _NARROW_MAP and shape.area > 1 for shape in shapes)


def _ends(plan: Plan) -> frozenset[Tensor]:
    read = {tensor for op in plan.ops for tensor in op.reads}
    last = {tensor for tensor in plan.outputs if tensor not in read}
    return frozenset(last | {head.src for head in plan.heads})


def _is_tail(group: _Group) -> bool:
    return all(isinstance(op, _TAIL) for op in group.ops)


def _pictures(plan: Plan, narrow: frozenset[Tensor]) -> frozenset[Tensor]:
    """The source, where it goes into narrow maps only."""
    readers = [op for op in plan.ops if plan.source in op.reads]
    is_exact = all(_is_mixing(op) and op.out in narrow for op in readers)
    return frozenset({plan.source}) if readers and is_exact else frozenset()
