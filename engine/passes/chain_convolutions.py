"""Conv2d 1 x 1, depthwise, 1 x 1 -> Chain, so that values between them stay in the cache."""

from __future__ import annotations

from engine.passes.usage import join_neighbours
from engine.plan.build import Plan
from engine.plan.ops import Chain, Conv2d, Op


def chain_convolutions(plan: Plan) -> Plan:
    return join_neighbours(plan, _join)


def _join(before: Op, op: Op) -> Chain | None:
    links = before.links if isinstance(before, Chain) else (before,)
    last = links[-1]
    if not isinstance(last, Conv2d) or not isinstance(op, Conv2d) or op.src != last.out:
        return None
    if last.residual is not None or not (_is_plain(last) and _is_plain(op)):
        return None
    to_depthwise = len(links) == 1 and _is_pointwise(last) and op.is_depthwise
    from_depthwise = last.is_depthwise and _is_pointwise(op)
    return Chain(op.out, (*links, op)) if to_depthwise or from_depthwise else None


def _is_plain(op: Conv2d) -> bool:
    one_each = op.groups in (1, op.weight.shape[0])
    return one_each and op.pool is None and not op.signed


def _is_pointwise(op: Conv2d) -> bool:
    return op.is_pointwise and op.groups == 1
