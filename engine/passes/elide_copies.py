"""Concat -> views: tensors are written directly to where a concatenation would copy them.

A source becomes a view of the concatenation; a concatenation of some channels of one tensor becomes
a view of that tensor. A tensor can be a view of only one other: further uses are copied.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from engine.plan.build import Plan, View
from engine.plan.ops import Concat, ConcatPart, Op, Tensor


def elide_copies(plan: Plan) -> Plan:
    views = _Views(plan)
    ops: list[Op] = []
    for op in plan.ops:
        if not isinstance(op, Concat):
            ops.append(op)
        elif parts := views.parts_to_copy(op):
            ops.append(replace(op, parts=parts))
    return replace(plan, ops=tuple(ops), views=views.resolved())


class _Views:
    def __init__(self, plan: Plan) -> None:
        self._source = plan.source
        self._view: dict[Tensor, View] = {}

    def parts_to_copy(self, concat: Concat) -> tuple[ConcatPart, ...]:
        """Make views of the sources of `concat` where possible; return the other parts."""
        if len(concat.parts) == 1:
            return self._view_source(concat, concat.parts[0])
        uses = Counter(part.src for part in concat.parts)
        return tuple(
            part
            for part in concat.parts
            if uses[part.src] > 1 or not self._view_in(concat.out, part)
        )

    def _view_source(self, concat: Concat, part: ConcatPart) -> tuple[ConcatPart, ...]:
        assert part.count == concat.out.shape.channels, concat
        if not self._fits(part.src, concat.out):
            return (part,)
        self._view[concat.out] = View(part.src, part.first)
        return ()

    def _view_in(self, out: Tensor, part: ConcatPart) -> bool:
        src = part.src
        is_whole = part.first == 0 and part.count == src.shape.channels
        if not is_whole or src in self._view or not self._fits(src, out):
            return False
        self._view[src] = View(out, part.at)
        return True

    def _fits(self, src: Tensor, out: Tensor) -> bool:
        """Whether rows of one tensor can be part of rows of the other."""
        return (
            src != self._source  # the caller fills it
            and not src.is_state
            and src.steps == out.steps
            and src.shape.sides[1:] == out.shape.sides[1:]
        )

    def resolved(self) -> dict[Tensor, View]:
        """Return all views as views of tensors that own memory."""
        resolved: dict[Tensor, View] = {}
        for tensor in self._view:
            chain = []
            while tensor in self._view and tensor not in resolved:
                chain.append(tensor)
                tensor = self._view[tensor].root
            for inner in reversed(chain):
                view = self._view[inner]
                outer = resolved.get(view.root, View(view.root, 0))
                resolved[inner] = View(outer.root, outer.channel + view.channel)
        return resolved
