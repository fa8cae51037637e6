"""Which tensors and constants are read, and the rewriting of pairs of ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from engine.plan.build import Plan
from engine.plan.ops import Op, Tensor

Constants = Mapping[str, NDArray[Any]]


class Intermediates:
    """The tensors with a single reader and no other use: fusing the reader removes them."""

    def __init__(self, plan: Plan) -> None:
        self._readers = Counter(tensor for op in plan.ops for tensor in op.reads)
        self._kept = plan.kept | plan.views.keys() | {view.root for view in plan.views.values()}

    def __contains__(self, tensor: Tensor) -> bool:
        return self._readers[tensor] == 1 and tensor not in self._kept


def join_pairs(plan: Plan, join: Callable[[Op, Op], Op | None]) -> tuple[Op, ...]:
    """Return the ops, fused by `join(before, op)` where `op` reads exactly one intermediate.

    `before` writes the intermediate. The fused op takes its position, so that its inputs still have
    the same values. `join` returns None to keep a pair.
    """
    intermediates = Intermediates(plan)
    joined: dict[int, Op] = {}
    writer: dict[Tensor, int] = {}
    for position, op in enumerate(plan.ops):
        src = op.reads[0] if len(op.reads) == 1 else None
        at = writer.get(src) if src is not None and src in intermediates else None
        fused = join(joined[at], op) if at is not None else None
        if at is None or fused is None:
            at, fused = position, op
        joined[at] = fused
        writer[op.out] = at
    return tuple(joined[at] for at in sorted(joined))


def join_neighbours(plan: Plan, join: Callable[[Op, Op], Op | None]) -> Plan:
    """Return the plan with consecutive ops replaced by `join(op, next)` where that is not None.

    Because they are consecutive, everything else that the second op reads is computed before the
    first.
    """
    intermediates = Intermediates(plan)
    ops: list[Op] = []
    for op in plan.ops:
        before = ops[-1] if ops else None
        joined = None
        if before is not None and before.out in intermediates and before.out in op.reads:
            joined = join(before, op)
        if joined is None:
            ops.append(op)
        else:
            ops[-1] = joined
    return replace(plan, ops=tuple(ops))


def with_ops(plan: Plan, ops: Iterable[Op], constants: Constants) -> Plan:
    """Return the plan with other ops, and those of `constants` that they read."""
    ops = tuple(ops)
    read = {constant.name for op in ops for constant in op.constants}
    return replace(
        plan,
        ops=ops,
        constants={name: values for name, values in constants.items() if name in read},
    )
