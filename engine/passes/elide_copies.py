"""Concat -> views: tensors are written where a concatenation would have copied them to.

A source lives inside the concatenation's memory; a concatenation that is merely some channels of
one tensor lives inside that tensor. A tensor has one home: to a second one it is copied.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from engine.plan.build import Plan, View
from engine.plan.ops import Concat, Op, Part, Tensor


def elide_copies(plan: Plan) -> Plan:
    homes = _Homes(plan)
    ops: list[Op] = []
    for op in plan.ops:
        if not isinstance(op, Concat):
            ops.append(op)
        elif parts := homes.parts_to_copy(op):
            ops.append(replace(op, parts=parts))
    return replace(plan, ops=tuple(ops), views=homes.views())


class _Homes:
    def __init__(self, plan: Plan) -> None:
        self._fixed = {plan.source}  # the caller's pictures: nothing moves in or out
        self._home: dict[Tensor, View] = {}

    def parts_to_copy(self, concat: Concat) -> tuple[Part, ...]:
        """Give homes to what `concat` joins; return the parts that found none there."""
        if len(concat.parts) == 1:
            return self._move_out(concat, concat.parts[0])
        uses = Counter(part.src for part in concat.parts)
        return tuple(
            part
            for part in concat.parts
            if uses[part.src] > 1 or not self._move_in(concat.out, part)
        )

    def _move_out(self, concat: Concat, part: Part) -> tuple[Part, ...]:
        assert part.count == concat.out.shape.channels, concat
        if not self._fits(part.src, concat.out):
            return (part,)
        self._home[concat.out] = View(part.src, part.first)
        return ()

    def _move_in(self, out: Tensor, part: Part) -> bool:
        src = part.src
        is_whole = part.first == 0 and part.count == src.shape.channels
        if not is_whole or src in self._home or not self._fits(src, out):
            return False
        self._home[src] = View(out, part.at)
        return True

    def _fits(self, src: Tensor, out: Tensor) -> bool:
        """Whether rows of one can be rows of the other, and keep their values."""
        return (
            src not in self._fixed
            and not src.is_state
            and src.steps == out.steps
            and src.shape.sides[1:] == out.shape.sides[1:]
        )

    def views(self) -> dict[Tensor, View]:
        """Every view, told from the tensor that owns the memory."""
        resolved: dict[Tensor, View] = {}
        for tensor in self._home:
            chain = []
            while tensor in self._home and tensor not in resolved:
                chain.append(tensor)
                tensor = self._home[tensor].root
            for inner in reversed(chain):
                home = self._home[inner]
                outer = resolved.get(home.root, View(home.root, 0))
                resolved[inner] = View(outer.root, outer.channel + home.channel)
        return resolved
