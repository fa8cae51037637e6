"""Ops that read or write int8 values and compute in float32."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.storage import Buffers, Kernel
from engine.plan import int8, ops
from engine.plan.activations import ACTIVATIONS


def convert(op: ops.Convert, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    before, after = buffers.scales.get(op.src), buffers.scales.get(op.out)

    def run() -> None:
        values = _floats(src, before)
        if after is None:
            np.copyto(out, values)
        else:
            int8.quantise(values, after, out)

    return run


def add(op: ops.Add, buffers: Buffers) -> Kernel:
    """Add whole int8 maps, each with its own scale."""
    sources = [(buffers.nhwc(each), buffers.scales[each]) for each in op.sources]
    out, scale = buffers.nhwc(op.out), buffers.scales[op.out]
    function = ACTIVATIONS[op.activation].numpy

    def run() -> None:
        total = _floats(*sources[0])
        for values, own in sources[1:]:
            total = int8.multiply_add(values, np.float32(own), total)
        int8.quantise(function(total), scale, out)

    return run


def _floats(values: Array, scale: float | None) -> Array:
    """Return a copy of values as float32."""
    if scale is None:
        return np.array(values, np.float32)
    copy = np.empty(values.shape, np.float32)
    int8.dequantise(values, scale, copy)
    return copy
