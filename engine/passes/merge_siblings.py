"""Conv2d 1x1 and Conv2d 1x1 of one map -> one with the filters of both: the map is read once.

Its output holds theirs side by side. Where some of them are joined with others, the concatenation
takes it in whole, if need be made wider at one end, so that nothing is copied when elide_copies has
been; convolutions whose outputs lie otherwise stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.passes.usage import with_ops
from engine.plan.build import Plan
from engine.plan.ops import Activate, Concat, Constant, Conv2d, Op, Part, Tensor
from engine.plan.shapes import Shape


def merge_siblings(plan: Plan) -> Plan:
    for siblings in _siblings(plan):
        place = _place(plan, siblings)
        if place is not None:
            plan = _merged(plan, place)
    return plan


@dataclass(frozen=True)
class _Place:
    """How the outputs lie side by side, and the concatenation that takes in `inside` of them."""

    siblings: tuple[Conv2d, ...]
    concat: Concat | None = None
    inside: tuple[Conv2d, ...] = ()

    @property
    def is_wider(self) -> bool:
        return self.concat is not None and len(self.inside) < len(self.siblings)


# ---------------------------------------------------------------- what can be merged


def _siblings(plan: Plan) -> list[list[Conv2d]]:
    aliases: dict[Tensor, Tensor] = {}  # a route of one layer is that layer under another name
    alike: dict[object, list[Conv2d]] = {}
    for op in plan.ops:
        if isinstance(op, Concat) and len(op.parts) == 1:
            (part,) = op.parts
            if part.count == part.src.shape.channels and not part.src.is_state:
                aliases[op.out] = aliases.get(part.src, part.src)
        elif isinstance(op, Conv2d) and _is_plain(op):
            conv = replace(op, src=aliases.get(op.src, op.src))
            kinds = conv.activation, conv.last_activation, conv.bias is None
            alike.setdefault((conv.src, *kinds), []).append(conv)
    return [found for found in alike.values() if len(found) > 1]


def _is_plain(conv: Conv2d) -> bool:
    is_dense = conv.groups == 1 and not conv.signed
    has_no_more = all(isinstance(step, Activate) for step in conv.tail)
    has_state = conv.src.is_state or conv.out.is_state
    return conv.is_pointwise and is_dense and not has_state and has_no_more


def _place(plan: Plan, siblings: Sequence[Conv2d]) -> _Place | None:
    """None where something would have to be copied."""
    of_output = {conv.out: conv for conv in siblings}
    concats = [
        op
        for op in plan.ops
        if isinstance(op, Concat) and any(part.src in of_output for part in op.parts)
    ]
    if not concats:
        return _Place(tuple(siblings))
    if len(concats) > 1 or len(concats[0].parts) == 1:
        return None
    (concat,) = concats
    numbers = [n for n, part in enumerate(concat.parts) if part.src in of_output]
    inside = tuple(of_output[concat.parts[n].src] for n in numbers)
    outside = tuple(conv for conv in siblings if conv not in inside)
    is_run = numbers == list(range(numbers[0], numbers[-1] + 1))
    is_whole = all(concat.parts[n].count == concat.parts[n].src.shape.channels for n in numbers)
    if not is_run or not is_whole or len(set(inside)) < len(inside):
        return None
    if not outside:
        return _Place(inside, concat, inside)
    if any(isinstance(op, Concat) and concat.out in op.reads for op in plan.ops):
        return None  # it would be part of two
    if numbers[-1] == len(concat.parts) - 1:
        return _Place((*inside, *outside), concat, inside)
    if numbers[0] == 0:
        return _Place((*outside, *inside), concat, inside)
    return None


# ---------------------------------------------------------------- the merged plan


def _merged(plan: Plan, place: _Place) -> Plan:
    convs = place.siblings
    outputs = [conv.out for conv in convs]
    first = next(op for op in plan.ops if op.out in outputs)
    constants = dict(plan.constants)

    def joined(parts: Iterable[Constant]) -> Constant:
        parts = list(parts)
        name = " and ".join(part.name for part in parts)
        constants[name] = np.concatenate([plan.constants[part.name] for part in parts])
        return Constant(name, constants[name].shape)

    wide = _wide(place, outputs)
    merged = replace(
        convs[0].writing(wide),
        weight=joined(conv.weight for conv in convs),
        bias=joined(conv.bias for conv in convs if conv.bias) if convs[0].bias else None,
    )
    read = {tensor for op in plan.ops if op is not place.concat for tensor in op.reads} | plan.kept
    ops: list[Op] = []
    for op in plan.ops:
        if op is first:
            ops.append(merged)
            ops += [each for each in _ranges(wide, outputs) if each.out in read]
        elif op is place.concat:
            ops += [] if op.out == wide else _taking_in(place, wide)
        elif op.out not in outputs:
            ops.append(op)
    return with_ops(plan, ops, constants)


def _wide(place: _Place, outputs: Sequence[Tensor]) -> Tensor:
    """What holds all of them: a concatenation of nothing else, or a tensor of its own."""
    if place.concat is not None and len(place.concat.parts) == len(outputs) == len(place.inside):
        return place.concat.out
    last = max(outputs, key=lambda out: out.index)
    return replace(last, shape=_widened(last.shape, sum(out.shape.channels for out in outputs)))


def _ranges(wide: Tensor, outputs: Sequence[Tensor]) -> list[Concat]:
    """Each output as channels of `wide`."""
    found, first = [], 0
    for out in outputs:
        found.append(Concat(out, (Part(wide, first, out.shape.channels, 0),)))
        first += out.shape.channels
    return found


def _taking_in(place: _Place, wide: Tensor) -> list[Concat]:
    """The concatenation with `wide` in the place of those of its parts that lie in it."""
    concat = place.concat
    assert concat is not None
    inside = {conv.out for conv in place.inside}
    extra = wide.shape.channels - sum(out.shape.channels for out in inside)
    is_first = place.siblings[: len(inside)] != place.inside  # what is added comes before
    shift = extra if is_first else 0
    parts = [replace(part, at=part.at + shift) for part in concat.parts if part.src not in inside]
    start = min(part.at for part in concat.parts if part.src in inside)
    parts.append(Part(wide, 0, wide.shape.channels, start))
    parts.sort(key=lambda part: part.at)
    if not place.is_wider:
        return [replace(concat, parts=tuple(parts))]
    channels = concat.out.shape.channels
    whole = replace(concat.out, shape=_widened(concat.out.shape, channels + extra))
    return [
        Concat(whole, tuple(parts)),
        Concat(concat.out, (Part(whole, shift, channels, 0),)),
    ]


def _widened(shape: Shape, channels: int) -> Shape:
    return replace(shape, channels=channels)
