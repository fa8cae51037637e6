"""Which convolution algorithm runs a Conv2d: the first of the list that supports its shape.

The choice reads shapes only, never a clock, so a network gives the same digits on every run.
An algorithm is a file with `supports(op)` and `prepare(op, weight, bias, workers)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.conv import (
    depthwise,
    heavy,
    im2col,
    pointwise,
    unfolded_rows,
    winograd,
    winograd_heavy,
)
from engine.backends.cpu.conv.base import Convolution
from engine.backends.cpu.conv.detecting import Detecting
from engine.backends.cpu.conv.pooled import Pooled
from engine.backends.cpu.conv.repeated import Repeated
from engine.backends.cpu.workers import Workers
from engine.plan import ops

FAST: tuple[ModuleType, ...] = (  # float32 only, the most particular first
    depthwise,
    pointwise,
    winograd,
    winograd_heavy,
    heavy,
    unfolded_rows,
)


def choose(
    op: ops.Conv2d | ops.Chain, constants: Mapping[str, Array], workers: Workers
) -> Convolution:
    """Return `op` made ready; call it, or what its `bind` returns, inside `workers.alone()`."""
    if isinstance(op, ops.Chain):
        return depthwise.prepare_chain(op, constants, workers)
    if op.yolo is not None:
        return Detecting(op, choose(op.before_yolo, constants, workers))
    if op.upsample is not None:
        return Repeated(op, choose(op.before_upsample, constants, workers), workers)
    if op.pool is not None and not op.pools_quads:
        return Pooled(op, choose(op.before_pool, constants, workers), workers)
    weight = constants[op.weight.name]
    bias = None if op.bias is None else constants[op.bias.name]
    if weight.dtype == np.float32:
        for algorithm in FAST:
            if algorithm.supports(op):
                return algorithm.prepare(op, weight, bias, workers)  # type: ignore[no-any-return]
    return im2col.prepare(op, weight, bias, workers)
