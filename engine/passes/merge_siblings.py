"""1 x 1 convolutions of one map -> one with all their filters, so that the map is read once.

Its output contains theirs side by side. If one concatenation reads some of them, it reads the whole
output instead and is widened if necessary, so that elide_copies can avoid all copies. Convolutions
for which that is impossible are not merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.passes.usage import with_ops
from engine.plan.build import Plan
from engine.plan.ops import Activate, Concat, ConcatPart, Constant, Conv2d, Op, Tensor


def merge_siblings(plan: Plan) -> Plan:
    for siblings in _siblings(plan):
        merge = _merge_of(plan, siblings)
        if merge is not None:
            plan = _merged(plan, merge)
    return plan


@dataclass(frozen=True)
class _Merge:
    """Convolutions in the order of their outputs; `concat` reads those that are `inside`."""

    siblings: tuple[Conv2d, ...]
    concat: Concat | None = None
    inside: tuple[Conv2d, ...] = ()

    @property
    def is_wider(self) -> bool:
        return self.concat is not None and len(self.inside) < len(self.siblings)


# ---------------------------------------------------------------- what can be merged


def _siblings(plan: Plan) -> list[list[Conv2d]]:
    aliases: dict[Tensor, Tensor] = {}  # a Concat of one entire tensor is that tensor
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
    is_only_activated = all(isinstance(step, Activate) for step in conv.tail)
    has_state = conv.src.is_state or conv.out.is_state
    return conv.is_pointwise and is_dense and not has_state and is_only_activated


def _merge_of(plan: Plan, siblings: Sequence[Conv2d]) -> _Merge | None:
    """Return how to merge the siblings, or None if that would require copies."""
    of_output = {conv.out: conv for conv in siblings}
    concats = [
        op
        for op in plan.ops
        if isinstance(op, Concat) and any(part.src in of_output for part in op.parts)
    ]
    if not concats:
        return _Merge(tuple(siblings))
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
        return _Merge(inside, concat, inside)
    if any(isinstance(op, Concat) and concat.out in op.reads for op in plan.ops):
        return None  # it would have to be a view of two tensors
    if numbers[-1] == len(concat.parts) - 1:
        return _Merge((*inside, *outside), concat, inside)
    if numbers[0] == 0:
        return _Merge((*outside, *inside), concat, inside)
    return None


# ---------------------------------------------------------------- the merged plan


def _merged(plan: Plan, merge: _Merge) -> Plan:
    convs = merge.siblings
    outputs = [conv.out for conv in convs]
    first = next(op for op in plan.ops if op.out in outputs)
    constants = dict(plan.constants)

    def joined(parts: Iterable[Constant]) -> Constant:
        parts = list(parts)
        name = " and ".join(part.name for part in parts)
        constants[name] = np.concatenate([plan.constants[part.name] for part in parts])
        return Constant(name, constants[name].shape)

    wide = _wide(merge, outputs)
    merged = replace(
        convs[0].writing(wide),
        weight=joined(conv.weight for conv in convs),
        bias=joined(conv.bias for conv in convs if conv.bias) if convs[0].bias else None,
    )
    read = {tensor for op in plan.ops if op is not merge.concat for tensor in op.reads} | plan.kept
    ops: list[Op] = []
    for op in plan.ops:
        if op is first:
            ops.append(merged)
            ops += [each for each in _ranges(wide, outputs) if each.out in read]
        elif op is merge.concat:
            ops += [] if op.out == wide else _widened_concat(merge, wide)
        elif op.out not in outputs:
            ops.append(op)
    return with_ops(plan, ops, constants)


def _wide(merge: _Merge, outputs: Sequence[Tensor]) -> Tensor:
    """Return the output of the merged convolution: that of `concat` if it reads nothing else."""
    if merge.concat is not None and len(merge.concat.parts) == len(outputs) == len(merge.inside):
        return merge.concat.out
    last = max(outputs, key=lambda out: out.index)
    return replace(last, shape=last.shape.with_channels(sum(out.shape.channels for out in outputs)))


def _ranges(wide: Tensor, outputs: Sequence[Tensor]) -> list[Concat]:
    """Return ops that take each output from `wide`."""
    found, first = [], 0
    for out in outputs:
        found.append(Concat(out, (ConcatPart(wide, first, out.shape.channels, 0),)))
        first += out.shape.channels
    return found


def _widened_concat(merge: _Merge, wide: Tensor) -> list[Concat]:
    """Return the concatenation with `wide` in place of the parts that it contains."""
    concat = merge.concat
    assert concat is not None
    inside = {conv.out for conv in merge.inside}
    extra = wide.shape.channels - sum(out.shape.channels for out in inside)
    extra_is_first = merge.siblings[: len(inside)] != merge.inside
    shift = extra if extra_is_first else 0
    parts = [replace(part, at=part.at + shift) for part in concat.parts if part.src not in inside]
    start = min(part.at for part in concat.parts if part.src in inside)
    parts.append(ConcatPart(wide, 0, wide.shape.channels, start))
    parts.sort(key=lambda part: part.at)
    if not merge.is_wider:
        return [replace(concat, parts=tuple(parts))]
    channels = concat.out.shape.channels
    whole = replace(concat.out, shape=concat.out.shape.with_channels(channels + extra))
    return [
        Concat(whole, tuple(parts)),
        Concat(concat.out, (ConcatPart(whole, shift, channels, 0),)),
    ]
