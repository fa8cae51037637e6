"""Maps times a factor for each channel: the convolution behind multiplies where it reads them.

That saves writing a map and reading it again. Behind a gate it is the widest of its block, and the
convolution, which makes few channels of it, has little else to do than to read it.
"""

from __future__ import annotations

from engine.backends.cuda import conv
from engine.backends.cuda.lower import neighbours, squeeze_excite
from engine.backends.cuda.ops.gpu import Target
from engine.backends.cuda.ops.scaled_conv import ScaledConv2d
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Multiply, Op, Tensor


def fold(plan: Plan, target: Target) -> Plan:
    """Multiply, Conv2d -> ScaledConv2d, where an algorithm knows it and no gate multiplies."""
    by_gates = set(squeeze_excite.scaling(plan, target).values())

    def made_of(before: Op, op: Op) -> ScaledConv2d | None:
        if not isinstance(before, Multiply) or not isinstance(op, Conv2d) or before in by_gates:
            return None
        if op.src != before.out or not _fits(before, op):
            return None
        made = ScaledConv2d.of(before, op)
        return made if _can_run(target, made) else None

    return neighbours.join(plan, made_of)


def _fits(multiply: Multiply, op: Conv2d) -> bool:
    """Whether the one scales whole channels, and the other reads each value once."""
    src, factor = multiply.src, multiply.factor
    return (
        multiply.activation == "linear"
        and _is_of_channels(src, factor)
        and src.shape.area > 1
        and op.is_pointwise
        and op.groups == 1
        and op.pool is None
        and op.yolo is None
        and op.upsample is None
    )


def _is_of_channels(src: Tensor, factor: Tensor) -> bool:
    return factor.shape.sides == (src.shape.channels, 1, 1) and factor.steps == src.steps


def _can_run(target: Target, op: ScaledConv2d) -> bool:
    if len({target.bytes_of(each) for each in (op.src, op.factor)}) > 1:
        return False
    return any(not choice.unfused for choice in conv.candidates(target, op))
