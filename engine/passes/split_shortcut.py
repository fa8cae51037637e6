"""Conv2d, Add of a map with fewer channels -> two Conv2d, one of them with a residual.

The first block of a residual network computes many channels from a map with few, and adds that map
to the first of them. The other filters then need no addition.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from engine.passes.usage import Intermediates, with_ops
from engine.plan.build import Plan
from engine.plan.ops import Activate, Add, Concat, ConcatPart, Constant, Conv2d, Op, Tensor

_EIGHT = 8  # channels must be a multiple, so that backends can load packs of values


def split_shortcut(plan: Plan) -> Plan:
    intermediates = Intermediates(plan)
    constants = dict(plan.constants)
    writers: dict[Tensor, Op] = {op.out: op for op in plan.ops}
    indices = count(1 + max((tensor.index for tensor in plan.tensors), default=0))

    def new(channels: int, like: Tensor) -> Tensor:
        return replace(like, index=next(indices), shape=like.shape.with_channels(channels))

    replaced: dict[Op, tuple[Op, ...]] = {}
    for op in plan.ops:
        if not isinstance(op, Add) or not _adds_fewer(op):
            continue
        many, few = op.sources
        conv = writers.get(many)
        if many not in intermediates or not isinstance(conv, Conv2d) or not _is_plain(conv):
            continue
        added, others = few.shape.channels, many.shape.channels - few.shape.channels
        first = _filters(conv, slice(0, added), new(added, op.out), constants)
        rest = _filters(conv, slice(added, added + others), new(others, op.out), constants)
        if op.activation != "linear":
            rest = rest.then(Activate(new(others, op.out), rest.out, op.activation))
        total = replace(op, out=new(added, op.out), sources=(first.out, few))
        parts = ConcatPart(total.out, 0, added, 0), ConcatPart(rest.out, 0, others, added)
        replaced[conv] = (first,)
        replaced[op] = (total, rest, Concat(op.out, parts))
    ops = [each for op in plan.ops for each in replaced.get(op, (op,))]
    return with_ops(plan, ops, constants) if replaced else plan


def _filters(
    conv: Conv2d, kept: slice, out: Tensor, constants: dict[str, NDArray[np.float32]]
) -> Conv2d:
    """Return a convolution with some of the filters, and add their arrays to `constants`."""

    def part(constant: Constant) -> Constant:
        name = f"{constant.name}[{kept.start}:{kept.stop}]"
        constants[name] = constants[constant.name][kept]
        return Constant(name, constants[name].shape)

    bias = part(conv.bias) if conv.bias else None
    return replace(conv.writing(out), weight=part(conv.weight), bias=bias)


def _adds_fewer(op: Add) -> bool:
    """Whether it adds a map to the first channels of one with more channels."""
    if len(op.sources) != 2 or op.weights is not None:
        return False
    many, few = (each.shape for each in op.sources)
    is_part = few.channels < many.channels and few.sides[1:] == many.sides[1:]
    tensors = (*op.sources, op.out)
    return (
        is_part
        and many == op.out.shape
        and few.channels % _EIGHT == 0
        and len({each.steps for each in tensors}) == 1
        and not any(each.is_state for each in tensors)
    )


def _is_plain(conv: Conv2d) -> bool:
    return conv.groups == 1 and not (conv.src.is_state or conv.signed) and conv.is_bare
