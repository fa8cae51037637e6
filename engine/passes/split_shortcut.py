"""Conv2d, Add of fewer channels -> two Conv2d side by side, of which one has something to add.

The first block of a residual network makes many channels of a map of few and adds that map to as
many of them. What the other filters make needs no addition and is never read again for one.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from engine.passes.usage import Middles, with_ops
from engine.plan.build import Plan
from engine.plan.ops import Activate, Add, Concat, Constant, Conv2d, Op, Part, Tensor

_EIGHT = 8  # channels begin where a backend's wide reads may


def split_shortcut(plan: Plan) -> Plan:
    middles = Middles(plan)
    constants = dict(plan.constants)
    writers: dict[Tensor, Op] = {op.out: op for op in plan.ops}
    indices = count(1 + max((tensor.index for tensor in plan.tensors), default=0))

    def new(channels: int, like: Tensor) -> Tensor:
        shape = replace(like.shape, channels=channels)
        return replace(like, index=next(indices), shape=shape)

    parted: dict[Op, tuple[Op, ...]] = {}
    for op in plan.ops:
        if not isinstance(op, Add) or not _adds_fewer(op):
            continue
        middle, few = op.sources
        conv = writers.get(middle)
        if middle not in middles or not isinstance(conv, Conv2d) or not _is_plain(conv):
            continue
        added, others = few.shape.channels, middle.shape.channels - few.shape.channels
        first = _filters(conv, slice(0, added), new(added, op.out), constants)
        rest = _filters(conv, slice(added, added + others), new(others, op.out), constants)
        if op.activation != "linear":
            rest = rest.then(Activate(new(others, op.out), rest.out, op.activation))
        total = replace(op, out=new(added, op.out), sources=(first.out, few))
        parts = Part(total.out, 0, added, 0), Part(rest.out, 0, others, added)
        parted[conv] = (first,)
        parted[op] = (total, rest, Concat(op.out, parts))
    ops = [each for op in plan.ops for each in parted.get(op, (op,))]
    return with_ops(plan, ops, constants) if parted else plan


def _filters(
    conv: Conv2d, kept: slice, out: Tensor, constants: dict[str, NDArray[np.float32]]
) -> Conv2d:
    """Some filters of the convolution, whose arrays join `constants`."""

    def part(constant: Constant) -> Constant:
        name = f"{constant.name}[{kept.start}:{kept.stop}]"
        constants[name] = constants[constant.name][kept]
        return Constant(name, constants[name].shape)

    bias = part(conv.bias) if conv.bias else None
    return replace(conv.writing(out), weight=part(conv.weight), bias=bias)


def _adds_fewer(op: Add) -> bool:
    """Whether it adds a map to the first channels of a larger one of the same sides."""
    if len(op.sources) != 2 or op.weights is not None:
        return False
    middle, few = (each.shape for each in op.sources)
    is_part = few.channels < middle.channels and few.sides[1:] == middle.sides[1:]
    tensors = (*op.sources, op.out)
    return (
        is_part
        and middle == op.out.shape
        and few.channels % _EIGHT == 0
        and len({each.steps for each in tensors}) == 1
        and not any(each.is_state for each in tensors)
    )


def _is_plain(conv: Conv2d) -> bool:
    return conv.groups == 1 and not (conv.src.is_state or conv.signed) and conv.is_bare
