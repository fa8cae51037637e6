"""The choice of a convolution algorithm: the first of a list that supports the convolution.

The choice depends on shapes alone, not on measurements, so a network gives the same digits on every
run. An algorithm is a file with `supports(op)` and `prepare(op, weight, bias, workers)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType, ModuleType

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.conv import (
    depthwise,
    filter_parallel,
    im2col,
    pointwise,
    unfolded_rows,
    winograd,
    winograd_whole_map,
)
from engine.backends.cpu.conv.base import Convolution
from engine.backends.cpu.conv.int8 import Int8Convolution
from engine.backends.cpu.conv.unfused import Unfused
from engine.backends.cpu.storage import Scales
from engine.backends.cpu.workers import Workers
from engine.plan import ops
from engine.plan.tail import split_tail

FAST: tuple[ModuleType, ...] = (  # float32 only, the most specialised first
    depthwise,
    pointwise,
    winograd,
    winograd_whole_map,
    filter_parallel,
    unfolded_rows,
)
_EXACT = (pointwise, filter_parallel, unfolded_rows)  # whose sums of whole numbers are exact


def choose(
    op: ops.Conv2d | ops.Chain,
    constants: Mapping[str, Array],
    workers: Workers,
    scales: Scales = MappingProxyType({}),
) -> Convolution:
    """Return `op` prepared to run; call what its `bind` returns within workers.serial_blas()."""
    if isinstance(op, ops.Chain):
        return depthwise.prepare_chain(op, constants, workers)
    if op.src in scales:
        exact = partial(_choose_exact, workers=workers)
        bias = None if op.bias is None else constants[op.bias.name]
        return Int8Convolution(op, constants[op.weight.name], bias, scales, exact, workers)
    part, rest = split_tail(op, _can_finish)
    if rest:
        return Unfused(op, part, rest, choose(part, constants, workers), workers)
    weight = constants[op.weight.name]
    bias = None if op.bias is None else constants[op.bias.name]
    if weight.dtype == np.float32:
        for algorithm in FAST:
            if algorithm.supports(op):
                return algorithm.prepare(op, weight, bias, workers)  # type: ignore[no-any-return]
    return im2col.prepare(op, weight, bias, workers)


def _choose_exact(op: ops.Conv2d, weight: Array, *, workers: Workers) -> Convolution:
    algorithm = next((each for each in _EXACT if each.supports(op)), im2col)
    return algorithm.prepare(op, weight, None, workers)  # type: ignore[no-any-return]


def _can_finish(op: ops.Conv2d) -> bool:
    """Return whether algorithms run the whole tail: they pool 2 x 2 cells before the bias."""
    return op.yolo is None and op.upsample is None and (op.pool is None or op.pools_quads)
