"""Elementwise ops."""

from __future__ import annotations

from functools import partial

import numpy as np

from engine.arrays import Array
from engine.backends.cpu import conversion
from engine.backends.cpu.storage import Buffers, Kernel, flat
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS

EPSILON = 1e-5  # added to the variance, as darknet does


def normalise(op: ops.Normalise, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    mean, bias = buffers.constant(op.mean), buffers.constant(op.bias)
    factor = buffers.constant(op.scale) / np.sqrt(buffers.constant(op.variance) + EPSILON)

    def run() -> None:
        np.subtract(src, mean, out=out)
        np.multiply(out, factor, out=out)
        np.add(out, bias, out=out)

    return run


def activate(op: ops.Activate, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    function = ACTIVATIONS[op.activation].numpy

    def run() -> None:
        np.copyto(out, function(src))

    return run


def add(op: ops.Add, buffers: Buffers) -> Kernel:
    if op.out in buffers.scales:
        return conversion.add(op, buffers)
    out = buffers.nchw(op.out)
    factors = _factors(op, buffers)
    sources = [buffers.nchw(source) for source in op.sources]
    function = ACTIVATIONS[op.activation].numpy
    if op.weights is None and all(source.shape == out.shape for source in sources):
        return _add_alike(op, buffers)
    is_aligned = all(source.shape[2:] == out.shape[2:] for source in sources)
    total = _add_channels if is_aligned else _add_flat

    def run() -> None:
        out[...] = function(total(sources, factors, out))

    return run


def _add_alike(op: ops.Add, buffers: Buffers) -> Kernel:
    assert op.out not in op.sources[2:], "it would be overwritten before it is read"
    out = buffers.nhwc(op.out)
    first, *others = (buffers.nhwc(source) for source in op.sources)
    function = ACTIVATIONS[op.activation].numpy

    def run() -> None:
        total = first
        for source in others:
            total = np.add(total, source, out=out)
        if op.activation != "linear" or not others:
            np.copyto(out, function(total))

    return run


def _factors(op: ops.Add, buffers: Buffers) -> list[Array | None]:
    """Return the factors of each source over the channels of `out`, or None if they are 1."""
    if op.weights is None:
        return [None for _ in op.sources]
    weights = buffers.constant(op.weights).reshape(len(op.sources), -1)
    return [np.broadcast_to(row, op.out.shape.channels)[:, None, None] for row in weights]


def _add_channels(sources: list[Array], factors: list[Array | None], out: Array) -> Array:
    total = np.zeros_like(out)
    for source, factor in zip(sources, factors, strict=True):
        count = min(source.shape[1], out.shape[1])
        values = source[:, :count]
        total[:, :count] += values if factor is None else values * factor[:count]
    return total


def _add_flat(sources: list[Array], factors: list[Array | None], out: Array) -> Array:
    total = np.zeros((len(out), out[0].size), out.dtype)
    for source, factor in zip(sources, factors, strict=True):
        values = flat(source)[:, : total.shape[1]]
        if factor is not None:
            values = values * flat(np.broadcast_to(factor, out.shape))[:, : values.shape[1]]
        total[:, : values.shape[1]] += values
    return total.reshape(out.shape)


def multiply(op: ops.Multiply, buffers: Buffers) -> Kernel:
    src, factor, out = buffers.nhwc(op.src), buffers.nhwc(op.factor), buffers.nhwc(op.out)
    function = ACTIVATIONS[op.activation].numpy
    is_by_channel = op.factor.shape.area == 1

    def run() -> None:
        if is_by_channel:  # repeat factors along a row: NumPy's loops over one pixel are short
            np.multiply(src, np.tile(factor, (1, 1, src.shape[2], 1)), out=out)
        else:
            np.multiply(src, factor, out=out)
        if op.activation != "linear":
            np.copyto(out, function(out))

    return run


def mix(op: ops.Mix, buffers: Buffers) -> Kernel:
    gate, yes, no, out = (buffers.nhwc(tensor) for tensor in (op.gate, op.yes, op.no, op.out))

    def run() -> None:
        np.add(gate * yes, (1 - gate) * no, out=out)

    return run


def clip(op: ops.Clip, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    return partial(np.clip, src, -op.limit, op.limit, out=out)


def repair(op: ops.Repair, buffers: Buffers) -> Kernel:
    src, out = buffers.nchw(op.src), buffers.nchw(op.out)

    def run() -> None:
        values = src.reshape(-1)
        broken = np.flatnonzero(~np.isfinite(values))
        if broken.size:
            values = values.copy()
            values[broken] = 1 / np.maximum(broken, 1)
            values[broken[broken == 0]] = 0
        out[...] = values.reshape(out.shape)

    return run
