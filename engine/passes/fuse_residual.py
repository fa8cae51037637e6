"""Conv2d, Add of two tensors -> one Conv2d, which adds the residual to its sums."""

from __future__ import annotations

from dataclasses import replace

from engine.passes.usage import Intermediates
from engine.plan.build import Plan
from engine.plan.ops import Add, Conv2d, Op, Tensor


def fuse_residual(plan: Plan) -> Plan:
    intermediates = Intermediates(plan)
    ops: dict[int, Op] = dict(enumerate(plan.ops))
    written = {plan.source: -1}  # the position of the op that wrote each tensor
    for position, op in enumerate(plan.ops):
        written[op.out] = position
        if not isinstance(op, Add) or not _is_shortcut(op):
            continue
        for sums in sorted(op.sources, key=written.__getitem__, reverse=True):
            conv = ops.get(written[sums])
            if sums not in intermediates or not isinstance(conv, Conv2d) or not conv.is_bare:
                continue
            residual = _other(op, sums)
            target = written[sums]
            if written[residual] > target:  # computed between the convolution and the addition
                if conv.src.is_state:
                    continue
                target = position
            del ops[position], ops[written[sums]]
            ops[target] = conv.then(replace(op, sources=(sums, residual)))
            written[op.out] = target
            break
    return replace(plan, ops=tuple(ops[position] for position in sorted(ops)))


def _is_shortcut(op: Add) -> bool:
    """Whether it adds two tensors of one shape that are not states, which may be overwritten."""
    shapes = {(each.shape, each.steps) for each in (*op.sources, op.out)}
    has_state = any(each.is_state for each in (*op.sources, op.out))
    return len(op.sources) == 2 and op.weights is None and len(shapes) == 1 and not has_state


def _other(op: Add, sums: Tensor) -> Tensor:
    first, second = op.sources
    return second if sums == first else first
