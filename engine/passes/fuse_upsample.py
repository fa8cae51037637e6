"""Conv2d, Upsample -> one Conv2d, which stores each value in all pixels that repeat it."""

from __future__ import annotations

from dataclasses import replace

from engine.passes.usage import join_pairs
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Op, Upsample


def fuse_upsample(plan: Plan) -> Plan:
    return replace(plan, ops=join_pairs(plan, _join))


def _join(conv: Op, upsample: Op) -> Op | None:
    if not isinstance(conv, Conv2d) or not isinstance(upsample, Upsample):
        return None
    if conv.is_bare and upsample.scale == 1:
        return conv.then(upsample)
    return None
