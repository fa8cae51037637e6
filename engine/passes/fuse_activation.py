"""Conv2d, MatMul, Add or Multiply, then Activate -> one op."""

from __future__ import annotations

from dataclasses import replace

from engine.passes.usage import join_pairs
from engine.plan.build import Plan
from engine.plan.ops import Activate, Add, Conv2d, MatMul, Multiply, Op


def fuse_activation(plan: Plan) -> Plan:
    return replace(plan, ops=join_pairs(plan, _join))


def _join(before: Op, activate: Op) -> Op | None:
    if not isinstance(activate, Activate):
        return None
    match before:
        case Conv2d(tail=()):
            return before.then(activate)
        case MatMul(activation="linear") | Add(activation="linear") | Multiply(activation="linear"):
            return replace(before, out=activate.out, activation=activate.activation)
    return None
