"""Fuse two convolutions where one kernel computes both: the map between them is never stored."""

from __future__ import annotations

from dataclasses import replace

from engine.backends.cuda.conv import chains
from engine.backends.cuda.lower.lowered import Lowered
from engine.passes.usage import join_neighbours
from engine.plan.build import Plan
from engine.plan.ops import Chain, Conv2d, Op


def fuse_chains(lowered: Lowered) -> Lowered:
    """Conv2d, Conv2d -> Chain, unless one algorithm is forced on every convolution."""
    target = lowered.target
    if target.algorithm is not None:
        return lowered

    def join(first: Op, second: Op) -> Chain | None:
        if not isinstance(first, Conv2d) or not isinstance(second, Conv2d):
            return None
        chain = Chain(second.out, (first, second))
        return chain if second.src == first.out and chains.choose(target, chain) else None

    return replace(lowered, plan=join_neighbours(lowered.plan, join))


def split_chains(plan: Plan) -> Plan:
    """Return the plan with the convolutions of every chain one by one."""
    links = (op.links if isinstance(op, Chain) else (op,) for op in plan.ops)
    return replace(plan, ops=tuple(op for each in links for op in each))
