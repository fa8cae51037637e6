"""Which ops run beside the others: the way to a detection layer while the network goes on.

On small maps neither way fills the card. What is read or written beside has memory of its own,
since its lifetime in the arena ends by the order of the ops.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.backends.cuda import conv
from engine.backends.cuda.ops.gpu import RUNNERS, Target
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Op, Tensor

_KINDS = (ops.Conv2d, ops.YoloOutput)
_MOST_PIXELS = 1 << 15  # of a run: more fill the card


def beside(
    plan: Plan, target: Target, may: Callable[[Op], bool] = lambda op: True
) -> frozenset[Op]:
    """Ops on which nothing depends but others of them: never the last op, so it has a way, too.

    Of an op that may not, those before it on its way may not either: it would not wait for them.
    """
    roots = {view.root for view in plan.views.values()}
    readers: dict[Tensor, list[Op]] = {}
    for op in plan.ops:
        for tensor in op.reads:
            readers.setdefault(tensor, []).append(op)
    found: set[Op] = set()
    for op in reversed(plan.ops[:-1]):
        is_plain = op.out not in plan.views and op.out not in roots and not op.out.is_state
        if (
            is_plain
            and isinstance(op, _KINDS)
            and target.rows(op.out) * op.out.shape.area <= _MOST_PIXELS
            and found.issuperset(readers.get(op.out, ()))
            and may(op)
        ):
            found.add(op)
    return frozenset(found)


def tensors(plan: Plan, target: Target) -> frozenset[Tensor]:
    """What those ops read and write, as it lies in memory."""
    touched = (tensor for op in beside(plan, target) for tensor in (*op.reads, op.out))
    return frozenset(plan.root(tensor) for tensor in touched)


def chosen(plan: Plan, target: Target) -> frozenset[Op]:
    """Those that run beside, by what computes them."""
    return beside(plan, target, lambda op: can_be(op, target))


def can_be(op: Op, target: Target) -> bool:
    """Whether it uses nothing of which a program has one, as scratch memory or cuBLAS."""
    target = target.of(op)
    if RUNNERS[type(op)].workspace(target, op):
        return False
    return not isinstance(op, ops.Conv2d) or (
        conv.tile(target, op, conv.choose(target, op)) is not None
    )
