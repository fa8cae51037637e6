"""AveragePool of a whole map, Conv2d, Conv2d -> Gate: the dense layers of squeeze-and-excite."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from engine.passes.usage import Intermediates
from engine.plan.build import Plan
from engine.plan.ops import AveragePool, Conv2d, Gate, Op, Tensor


def fuse_gate(plan: Plan) -> Plan:
    intermediates = Intermediates(plan)
    ops: dict[int, Op] = dict(enumerate(plan.ops))
    written: dict[Tensor, int] = {}
    for position, op in enumerate(plan.ops):
        written[op.out] = position
        # a tensor that no earlier op writes is the input or a state of the previous time step
        if not _is_dense(op) or op.src not in intermediates or op.src not in written:
            continue
        squeeze = plan.ops[written[op.src]]
        if not _is_dense(squeeze) or squeeze.src not in intermediates or squeeze.src not in written:
            continue
        pool = plan.ops[written[squeeze.src]]
        if isinstance(pool, AveragePool) and _is_whole(pool):
            del ops[written[op.src]], ops[position]
            # at the pool's position, because a later op may overwrite a state that it reads
            ops[written[squeeze.src]] = _gate(pool, squeeze, op)
    return replace(plan, ops=tuple(ops[position] for position in sorted(ops)))


def _is_dense(op: Op) -> TypeGuard[Conv2d]:
    """Whether it is a dense layer: a convolution of one pixel and an activation."""
    match op:
        case Conv2d(groups=1, signed=False, is_bare=True):
            return op.is_pointwise and op.src.shape.area == 1
    return False


def _is_whole(pool: AveragePool) -> bool:
    is_all = pool.window.size == pool.src.shape.sides[1:] and not any(pool.window.padding)
    return is_all and pool.out.shape.area == 1


def _gate(pool: AveragePool, squeeze: Conv2d, expand: Conv2d) -> Gate:
    return Gate(
        expand.out,
        pool.src,
        *(squeeze.weight, squeeze.bias, squeeze.activation),
        *(expand.weight, expand.bias, expand.activation),
    )
