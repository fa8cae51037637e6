"""Conv2d, MaxPool -> one Conv2d, for a pool that halves the map."""

from __future__ import annotations

from dataclasses import replace

from engine.passes.usage import join_pairs
from engine.plan.activations import ACTIVATIONS
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, MaxPool, Op
from engine.plan.shapes import Window

_HALVES = Window((2, 2), (2, 2))


def fuse_pool(plan: Plan) -> Plan:
    return replace(plan, ops=join_pairs(plan, _join))


def _join(conv: Op, pool: Op) -> Op | None:
    if isinstance(conv, Conv2d) and isinstance(pool, MaxPool) and can_take(conv, pool):
        return conv.then(replace(pool, window=_HALVES))
    return None


def can_take(conv: Conv2d, pool: MaxPool) -> bool:
    """Return whether the pool can be fused, so that backends may pool before activating."""
    return conv.is_bare and ACTIVATIONS[conv.activation].rises and pool.halves
