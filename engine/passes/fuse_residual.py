"""Conv2d, Add -> Conv2d(residual=...): a shortcut is added while the sum is still at hand."""

from __future__ import annotations

from dataclasses import replace

from engine.passes.usage import Middles
from engine.plan.build import Plan
from engine.plan.ops import Add, Conv2d, Op, Tensor


def fuse_residual(plan: Plan) -> Plan:
    middles = Middles(plan)
    ops: dict[int, Op] = dict(enumerate(plan.ops))
    written = {plan.source: -1}  # the place of the op that wrote each tensor
    for place, op in enumerate(plan.ops):
        written[op.out] = place
        if not isinstance(op, Add) or not _is_shortcut(op):
            continue
        for middle in sorted(op.sources, key=written.__getitem__, reverse=True):
            conv = ops.get(written[middle])
            if middle not in middles or not isinstance(conv, Conv2d) or not conv.is_bare:
                continue
            residual = _other(op, middle)
            target = written[middle]
            if written[residual] > target:  # computed between the convolution and the addition
                if conv.src.is_state:
                    continue
                target = place
            del ops[place], ops[written[middle]]
            ops[target] = conv.then(replace(op, sources=(middle, residual)))
            written[op.out] = target
            break
    return replace(plan, ops=tuple(ops[place] for place in sorted(ops)))


def _is_shortcut(op: Add) -> bool:
    """Whether it adds two tensors, value by value, that nothing overwrites meanwhile."""
    shapes = {(each.shape, each.steps) for each in (*op.sources, op.out)}
    has_state = any(each.is_state for each in (*op.sources, op.out))
    return len(op.sources) == 2 and op.weights is None and len(shapes) == 1 and not has_state


def _other(op: Add, middle: Tensor) -> Tensor:
    first, second = op.sources
    return second if middle == first else first
