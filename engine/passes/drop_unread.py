"""Drop ops whose output is not read."""

from __future__ import annotations

from engine.passes.usage import with_ops
from engine.plan.build import Plan
from engine.plan.ops import Op


def drop_unread(plan: Plan) -> Plan:
    wanted = set(plan.kept)
    live: list[Op] = []
    for op in reversed(plan.ops):
        if op.out in wanted or op.out.is_state:  # the next run reads states
            live.append(op)
            wanted.update(op.reads)
    return with_ops(plan, reversed(live), plan.constants)
