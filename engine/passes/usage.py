"""Who reads a tensor, and which constants are read: what passes must know before they rewrite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from engine.plan.build import Plan
from engine.plan.ops import Op, Tensor

Constants = Mapping[str, NDArray[Any]]


class Middles:
    """Tells the tensors that may vanish when the op that reads them joins the one before it."""

    def __init__(self, plan: Plan) -> None:
        self._readers = Counter(tensor for op in plan.ops for tensor in op.reads)
        self._kept = plan.kept | plan.views.keys() | {view.root for view in plan.views.values()}

    def __contains__(self, tensor: Tensor) -> bool:
        return self._readers[tensor] == 1 and tensor not in self._kept


def join_pairs(plan: Plan, join: Callable[[Op, Op], Op | None]) -> tuple[Op, ...]:
    """The ops, each replaced by `join(before, op)` where it alone reads what `before` writes.

    The joined op stands at the place of `before`, so that what it reads is as it was there;
    `join` answers None for a pair that stays.
    """
    middles = Middles(plan)
    joined: dict[int, Op] = {}
    writer: dict[Tensor, int] = {}
    for position, op in enumerate(plan.ops):
        middle = op.reads[0] if len(op.reads) == 1 else None
        at = writer.get(middle) if middle is not None and middle in middles else None
        pair = join(joined[at], op) if at is not None else None
        if at is None or pair is None:
            at, pair = position, op
        joined[at] = pair
        writer[op.out] = at
    return tuple(joined[at] for at in sorted(joined))


def join_neighbours(plan: Plan, join: Callable[[Op, Op], Op | None]) -> Plan:
    """The plan with an op and the next one replaced by `join(op, next)`, where that is not None.

    Only neighbours: then nothing that the second reads is computed after the first.
    """
    middles = Middles(plan)
    ops: list[Op] = []
    for op in plan.ops:
        before = ops[-1] if ops else None
        joined = None
        if before is not None and before.out in middles and before.out in op.reads:
            joined = join(before, op)
        if joined is None:
            ops.append(op)
        else:
            ops[-1] = joined
    return replace(plan, ops=tuple(ops))


def with_ops(plan: Plan, ops: Iterable[Op], constants: Constants) -> Plan:
    """The plan with other ops, and of `constants` only those that they read."""
    ops = tuple(ops)
    read = {constant.name for op in ops for constant in op.constants}
    return replace(
        plan,
        ops=ops,
        constants={name: values for name, values in constants.items() if name in read},
    )
