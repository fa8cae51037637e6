"""Choose the tensors that are int8, and convert values where int8 and float ops meet.

It runs after all other passes. FUSING runs before it on every device, so that all devices quantise
the same tensors. A tensor becomes int8 if a convolution that multiplies integers reads it, and only
convolutions, shortcuts and ops that move values write it. Heads, outputs, and what
squeeze-and-excite blocks, depthwise convolutions and recurrent layers use are float.

Tensors that are copied to each other share one scale, as do a concatenation and its parts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from math import isfinite, prod
from typing import Any

import numpy as np

from engine.plan import int8, ops
from engine.plan.build import Plan
from engine.plan.ops import ConcatPart, Conv2d, Op, Tensor, values_of

# The least share of a network's products that must be integer. With 0.54, in enet-coco, int8 was
# slower than float16 at any batch size: most of its ops are float, and values have to be converted.
# Other networks have at least 0.8.
_LEAST_SHARE = 2 / 3

ALL_FLOAT = "no layer multiplies integers (docs/int8.md), and all of them stay float"


@dataclass(frozen=True)
class LayerRanges:
    """The results of a calibration, by layer number."""

    largest: Mapping[int, float]  # largest magnitude of the output that int8 must represent
    floats: Collection[int] = field(default=())  # the convolutions that multiply floats


def quantise(plan: Plan, ranges: LayerRanges) -> Plan:
    """Return the plan with `scales`, in which convolutions of int8 tensors multiply integers."""
    assert not plan.scales, "the plan is already quantised"
    plan = replace(plan, arena=None)  # it counts values, not bytes
    chosen = _Choice(plan, ranges)
    return _Rewriter(plan, chosen.scales, chosen.convolutions).rewritten()


def candidates(plan: Plan) -> list[int]:
    """Return the layers whose convolutions could multiply integers."""
    return _layers_of_all(_possible(plan))


def integer_layers(plan: Plan, ranges: LayerRanges) -> list[int]:
    """Return the layers whose convolutions multiply integers with these ranges."""
    return _layers_of_all(_Choice(plan, ranges).convolutions)


def where_it_gains(plan: Plan, ranges: LayerRanges) -> LayerRanges:
    """Return the ranges, with all layers float if int8 would make the network slower.

    The first layers do not count: they are float in every network.
    """
    possible, stems = _possible(plan), _stems(plan)
    products = {
        op: op.grid.size * prod(op.weight.shape[1:])
        for op in plan.ops
        if isinstance(op, Conv2d) and op.src != plan.source and op not in stems
    }
    if sum(products[op] for op in possible) >= _LEAST_SHARE * sum(products.values()):
        return ranges
    return replace(ranges, floats=frozenset(candidates(plan)))


def _possible(plan: Plan) -> Collection[Conv2d]:
    everything = LayerRanges(dict.fromkeys(range(len(plan.layers)), 1.0))
    return _Choice(plan, everything).convolutions


def _layers_of_all(convolutions: Iterable[Conv2d]) -> list[int]:
    return sorted({number for op in convolutions for number in layers_of(op)})


def layers_of(op: Conv2d) -> list[int]:
    """Return the layers that a convolution's filters come from: several if it was merged."""
    return [int(number) for number in re.findall(r"(?:^| and )(\d+)\.", op.weight.name)]


# ---------------------------------------------------------------- which tensors


class _Choice:
    """The int8 tensors with their scales, and the convolutions that read them."""

    def __init__(self, plan: Plan, ranges: LayerRanges) -> None:
        self._plan = plan
        self._scaled = _Groups()  # tensors with a common scale
        self._typed = _Groups()  # tensors that must all be int8 or all float
        for op in plan.ops:
            self._join(op)
        for tensor, view in plan.views.items():
            self._join_scaled((tensor, view.root))
        largest = self._largest(ranges)
        stems = _stems(plan)
        able = [
            op
            for op in plan.ops
            if isinstance(op, Conv2d) and self._can_multiply(op) and op not in stems
        ]
        able = [op for op in able if not set(layers_of(op)) & set(ranges.floats)]
        kept = self._choose(largest, able)
        self.convolutions = frozenset(op for op in able if self._typed[op.src] in kept)
        self.scales = {
            tensor: int8.scale_of(largest[self._scaled[tensor]])
            for tensor in (*plan.tensors, *plan.views, *(v.root for v in plan.views.values()))
            if self._typed[tensor] in kept
        }

    def _join(self, op: Op) -> None:
        if _moves(op):
            self._join_scaled((op.out, *op.reads))
        elif isinstance(op, Conv2d) and op.residual is not None:
            self._typed.join((op.out, op.residual))
        elif _adds(op):
            self._typed.join((op.out, *op.reads))

    def _join_scaled(self, tensors: Iterable[Tensor]) -> None:
        tensors = tuple(tensors)
        self._scaled.join(tensors)
        self._typed.join(tensors)

    def _largest(self, ranges: LayerRanges) -> dict[Tensor, float]:
        """Return the largest known magnitude of each group with one scale."""
        found: dict[Tensor, float] = {}
        for number, tensor in enumerate(self._plan.layers):
            largest = ranges.largest.get(number, 0.0)
            if largest > 0 and isfinite(largest):
                group = self._scaled[tensor]
                found[group] = max(largest, found.get(group, 0.0))
        return found

    def _can_multiply(self, op: Conv2d) -> bool:
        known = self._plan.constants
        constants = [known[each.name] for each in op.constants if each.name in known]
        return (
            type(op) is Conv2d
            and op.groups == 1
            and not op.signed
            and prod(op.weight.shape[1:]) <= int8.DEEPEST
            and all(bool(np.isfinite(each).all()) for each in constants)
        )

    def _choose(self, largest: Mapping[Tensor, float], able: list[Conv2d]) -> set[Tensor]:
        """Return the groups of int8 tensors."""
        plan = self._plan
        tensors = {*plan.tensors, *plan.views, *(view.root for view in plan.views.values())}
        read = {tensor for op in plan.ops for tensor in op.reads}
        ends = {head.src for head in plan.heads} | (set(plan.outputs) - read)
        views = {tensor: view.channel for tensor, view in plan.views.items()}
        kept = {self._typed[tensor] for tensor in tensors}
        for tensor in tensors:
            can_be = (
                tensor.shape.channels % int8.CHANNELS == 0
                and views.get(tensor, 0) % int8.CHANNELS == 0
                and self._scaled[tensor] in largest
                and tensor not in ends
                and tensor != plan.source
                and not tensor.is_state
            )
            if not can_be:
                kept.discard(self._typed[tensor])
        for op in plan.ops:
            is_dense = isinstance(op, Conv2d) and op.groups == 1
            if not (_moves(op) or is_dense or isinstance(op, ops.Add)):
                kept.discard(self._typed[op.out])
        return kept & {self._typed[op.src] for op in able}


def _stems(plan: Plan) -> set[Conv2d]:
    """Return the convolution that halves the map after the first one, if it is of that kind.

    GPUs compute both in one float16 kernel: the map between them is the largest in the network, and
    writing it in int8 takes longer.
    """
    firsts = {
        op.out
        for op in plan.ops
        if isinstance(op, Conv2d) and op.src == plan.source and op.is_bare and op.stride == (1, 1)
    }
    reads = Counter(tensor for op in plan.ops for tensor in op.reads)
    return {
        op
        for op in plan.ops
        if isinstance(op, Conv2d)
        and op.src in firsts
        and reads[op.src] == 1
        and op.is_bare
        and op.stride == (2, 2)
    }


class _Groups:
    """Disjoint sets of tensors, each named by one of its members."""

    def __init__(self) -> None:
        self._name: dict[Tensor, Tensor] = {}

    def __getitem__(self, tensor: Tensor) -> Tensor:
        while (name := self._name.get(tensor, tensor)) != tensor:
            tensor = name
        return tensor

    def join(self, tensors: Iterable[Tensor]) -> None:
        first, *others = (self[tensor] for tensor in tensors)
        for other in others:
            self._name[self[other]] = self[first]


def _moves(op: Op) -> bool:
    """Whether an op copies values, so that its tensors may be int8 with one scale."""
    if isinstance(op, ops.Concat):
        numbers = [number for part in op.parts for number in (part.first, part.count, part.at)]
        return all(number % int8.CHANNELS == 0 for number in numbers)
    if isinstance(op, ops.Upsample):
        return op.scale == 1
    return isinstance(op, ops.MaxPool | ops.Reorg)


def _adds(op: Op) -> bool:
    """Whether it is an addition of whole maps, which may be int8 with a scale each."""
    if not isinstance(op, ops.Add) or op.weights is not None or len(op.sources) != 2:
        return False
    return all((each.shape, each.steps) == (op.out.shape, op.out.steps) for each in op.sources)


# ---------------------------------------------------------------- the rewritten plan


class _Rewriter:
    """Inserts ops.Convert where a float op reads or writes an int8 tensor."""

    def __init__(
        self, plan: Plan, scales: Mapping[Tensor, float], convolutions: Collection[Conv2d]
    ) -> None:
        self._plan = plan
        self._scales = scales
        self._convolutions = convolutions
        self._floats: dict[Tensor, Tensor] = {}  # the float counterparts of int8 tensors
        self._ops: list[Op] = []
        self._indices = count(1 + max((each.index for each in plan.tensors), default=0))

    def rewritten(self) -> Plan:
        for op in self._plan.ops:
            is_moved = op.out in self._scales and (_moves(op) or _adds(op))
            if op in self._convolutions or is_moved:
                self._ops.append(op)
            else:
                self._emit_float(op)
        return replace(self._plan, ops=tuple(self._ops), scales=self._scales)

    def _emit_float(self, op: Op) -> None:
        read = [tensor for tensor in dict.fromkeys(op.reads) if tensor in self._scales]
        for tensor in read:
            if tensor not in self._floats:
                self._floats[tensor] = self._new(tensor)
                self._ops.append(ops.Convert(self._floats[tensor], tensor))
        op = _reading(op, {tensor: self._floats[tensor] for tensor in read})
        out = op.out
        if out not in self._scales:
            self._ops.append(op)
            return
        values = self._floats[out] = self._new(out)
        written = op.writing(values) if isinstance(op, Conv2d) else replace(op, out=values)
        self._ops += [written, ops.Convert(out, values)]

    def _new(self, like: Tensor) -> Tensor:
        return replace(like, index=next(self._indices))


def _reading(op: Any, others: Mapping[Tensor, Tensor]) -> Any:
    """Return an op that reads other tensors."""
    if not others:
        return op

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return others.get(value, value)
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        if isinstance(value, ConcatPart):
            return replace(value, src=changed(value.src))
        return _reading(value, others) if isinstance(value, Op) else value

    values = {name: changed(value) for name, value in values_of(op).items() if name != "out"}
    return replace(op, **values)
