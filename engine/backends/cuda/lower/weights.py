"""Prepare the constants of a lowered program and lay them out in one block of device memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.lower.lowered import Decoder, Lowered, Step
from engine.backends.cuda.ops.gpu import align
from engine.plan.ops import Chain, Constant, Head, Op, values_of

Prepare = Callable[[Lowered, Step | Decoder], Mapping[str, Array]]


@dataclass(frozen=True)
class Weights:
    """The contents of the block of weights, and where each array of each op begins."""

    arrays: tuple[tuple[int, Array], ...]  # (offset, values)
    offsets: Mapping[tuple[Op | Head, str], int]
    sizes: Mapping[int, int]  # bytes by offset
    size: int


def prepare(lowered: Lowered, step: Step | Decoder) -> dict[str, Array]:
    """Return the arrays of a step as the device will have them."""
    known = lowered.plan.constants
    constants = {name: known[each.name] for name, each in _constants(step.op).items()}
    with np.errstate(over="ignore"):  # weights beyond float16: overflow.py finds them
        made = step.prepare(lowered.target, constants)
    return {name: np.ascontiguousarray(values) for name, values in made.items()}


def lay_out_weights(lowered: Lowered, prepare: Prepare = prepare) -> Weights:
    """Prepare the arrays of every step; what several steps share is kept once."""
    readers = Counter(constant.name for op in lowered.plan.ops for constant in op.constants)
    arrays: list[tuple[int, Array]] = []
    offsets: dict[tuple[Op | Head, str], int] = {}
    known: dict[bytes, int] = {}
    top = 0
    for step in lowered.launches:
        # Not on several threads: glibc would keep the freed memory of each of them.
        made, key = prepare(lowered, step), step.op
        is_shared = any(readers[constant.name] > 1 for constant in _constants(key).values())
        for name, values in made.items():
            identity = _identity(values) if is_shared else b""
            if identity in known:
                offsets[key, name] = known[identity]
                continue
            if is_shared:
                known[identity] = top
            offsets[key, name] = top
            arrays.append((top, values))
            top += align(values.nbytes)
    sizes = {offset: values.nbytes for offset, values in arrays}
    return Weights(tuple(arrays), offsets, sizes, top)


def _constants(item: Op | Head) -> dict[str, Constant]:
    """Return constants by the name of their field, after the number of the link in a chain."""
    if isinstance(item, Chain):
        return {
            f"{number}.{name}": value
            for number, link in enumerate(item.links)
            for name, value in _constants(link).items()
        }
    values = values_of(item).items()
    return {name: value for name, value in values if isinstance(value, Constant)}


def _identity(values: Array) -> bytes:
    return sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).digest()
