"""What a gate shares with the ops around it, so that fewer kernels run and read the map.

A depthwise convolution leaves its sums, multiplied with the weights of the first layer of the gate
behind it: they lie in the workspace, which is the gate's, and nothing else runs between the two. A
gate scales the map, where that is the next op.
"""

from __future__ import annotations

from itertools import pairwise

from engine.backends.cuda import conv
from engine.backends.cuda.conv import depthwise
from engine.backends.cuda.gpu import Squeezing, Target
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Op

_MOST_SCALED = 3 << 18  # values of all rows: larger maps are scaled faster by a kernel of their own


def squeezing(plan: Plan, target: Target) -> dict[Op, Squeezing]:
    """By convolution and by gate: what the one leaves and the other has."""
    found: dict[Op, Squeezing] = {}
    for op, gate in pairwise(plan.ops):
        if not isinstance(op, ops.Conv2d) or not isinstance(gate, ops.Gate) or gate.src != op.out:
            continue
        own = target.of(op)
        left = depthwise.squeezing(own, op, gate)
        is_alike = own.value_bytes == target.of(gate).value_bytes
        if left and is_alike and conv.choice(target, op) == "depthwise":
            found |= {op: left, gate: left}
    return found


def scaling(plan: Plan, target: Target) -> dict[Op, ops.Multiply]:
    """By gate: what multiplies a map by its factors, which it does as well."""
    return {
        gate: op
        for gate, op in pairwise(plan.ops)
        if isinstance(gate, ops.Gate) and isinstance(op, ops.Multiply) and _scales(target, gate, op)
    }


def _scales(target: Target, gate: ops.Gate, op: ops.Multiply) -> bool:
    """Whether a gate can, and does so faster."""
    own, out = target.of(gate), op.out.shape
    if op.factor != gate.out or op.src.shape != out or own != target.of(op):
        return False
    if gate.src.shape.area != out.area:  # the map that is scaled need not be the one summed up
        return False
    touched = {op.src, op.out, gate.out}
    is_packed = not (touched & own.misaligned or out.channels % (16 // own.value_bytes))
    is_small = target.rows(op.out) * out.size <= _MOST_SCALED
    return is_packed and is_small and not touched & own.floats
