"""Two ops as one, of neighbours of which only the second reads what the first makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from engine.plan.build import Plan
from engine.plan.ops import Op


def join(plan: Plan, made_of: Callable[[Op, Op], Op | None]) -> Plan:
    """The plan with what `made_of` makes of two, in the second's place; None where it makes none.

    What lies between them is nobody else's, nor a part of another tensor. An op is joined once.
    """
    readers = Counter(tensor for op in plan.ops for tensor in op.reads)
    shared = plan.kept | plan.views.keys() | {view.root for view in plan.views.values()}
    joined: dict[Op, Op | None] = {}
    for first, second in pairwise(plan.ops):
        between = first.out
        if first in joined or readers[between] != 1 or between in shared:
            continue
        made = made_of(first, second) if between in second.reads else None
        if made is not None:
            joined |= {first: None, second: made}
    if not joined:
        return plan
    ops = (joined.get(op, op) for op in plan.ops)
    return replace(plan, ops=tuple(op for op in ops if op is not None))
