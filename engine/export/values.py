"""Ops that compute value by value, or across the channels of a pixel, in ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.export.activations import activate
from engine.export.writer import INPUT, Writer, writes
from engine.plan import ops
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@writes(ops.Normalise)
def normalise(onto: Writer, op: ops.Normalise) -> str:
    arrays = map(onto.constant, (op.scale, op.bias, op.mean, op.variance))
    return onto.node("BatchNormalization", onto[op.src], *arrays, epsilon=1e-5)


@writes(ops.Activate)
def activation(onto: Writer, op: ops.Activate) -> str:
    return activate(onto, onto[op.src], op.activation)


@writes(ops.Add)
def add(onto: Writer, op: ops.Add) -> str:
    values = [_as_long_as(onto, source, op.out.shape) for source in op.sources]
    if op.weights is not None:
        factors = onto.values(op.weights)
        values = [
            onto.node("Mul", value, onto.array(factor.reshape(1, -1, 1, 1)))
            for value, factor in zip(values, factors, strict=True)
        ]
    total = values[0]
    for value in values[1:]:
        total = onto.node("Add", total, value)
    return activate(onto, total, op.activation)


def _as_long_as(onto: Writer, source: Tensor, shape: Shape) -> str:
    """Read flat: filled with zeros or cut where the sizes differ."""
    value, size = onto[source], source.shape.size
    if source.shape == shape:
        return value
    value = onto.reshape(value, 0, size)
    if size > shape.size:
        value = onto.slice(value, 0, shape.size, 1)
    elif size < shape.size:
        value = onto.pad(value, (0, 0), (0, shape.size - size), 0)
    return onto.shaped(value, shape)


@writes(ops.Multiply)
def multiply(onto: Writer, op: ops.Multiply) -> str:
    return activate(onto, onto.node("Mul", onto[op.src], onto[op.factor]), op.activation)


@writes(ops.Load)
def load(onto: Writer, op: ops.Load) -> str:
    """As many rows as the input has."""
    batch = onto.slice(onto.node("Shape", INPUT), 0, 1, 0)
    sides = onto.node("Concat", batch, onto.integers(op.out.shape.sides), axis=0)
    values = onto.values(op.constant).reshape(1, *op.out.shape.sides)
    return onto.node("Expand", onto.array(values), sides)


@writes(ops.NormaliseChannels)
def normalise_channels(onto: Writer, op: ops.NormaliseChannels) -> str:
    value = onto[op.src]
    if op.kind == "softmax_max":
        value = onto.node("Sub", value, onto.reduce("Max", value, 1))
    value = onto.node("Relu" if op.kind == "positive" else "Exp", value)
    return onto.node("Div", value, onto.scaled(onto.reduce("Sum", value, 1), 1, 1e-4))


@writes(ops.L2Norm)
def l2_norm(onto: Writer, op: ops.L2Norm) -> str:
    value = onto[op.src]
    total = onto.reduce("Sum", onto.node("Mul", value, value), 1)
    return onto.node("Div", value, onto.node("Sqrt", total))


@writes(ops.LocalNorm)
def local_norm(onto: Writer, op: ops.LocalNorm) -> str:
    """Which squares a channel's norm counts, and how often, is a matrix."""
    channels = op.src.shape.channels
    counts = np.zeros((channels, channels), np.float32)
    counts[0, : op.size // 2] = 1
    for channel in range(1, channels):
        counts[channel] = counts[channel - 1]
        enters, leaves = channel + op.size // 2, channel - (op.size - 1) // 2 - 1
        if enters < channels:
            counts[channel, enters] += 1
        if leaves >= 0:
            counts[channel, leaves] -= 1
    value = onto[op.src]
    squares = onto.node("Mul", value, value)
    sums = onto.node("Conv", squares, onto.array(op.alpha * counts[:, :, None, None]))
    norm = onto.scaled(sums, 1, op.kappa)
    return onto.node("Mul", value, onto.node("Pow", norm, onto.number(-op.beta)))


@writes(ops.Softmax)
def softmax(onto: Writer, op: ops.Softmax) -> str:
    length = sum(op.runs)
    value = onto.scaled(onto[op.src], 1 / op.temperature)
    value = softmax_runs(onto, onto.reshape(value, 0, op.src.shape.size // length, length), op.runs)
    return onto.shaped(value, op.out.shape)


def softmax_runs(onto: Writer, value: str, runs: Sequence[int]) -> str:
    """Over runs of the last axis, which they fill."""
    if len(runs) == 1:
        return onto.node("Softmax", value, axis=2)
    parts = [onto.node("Softmax", part, axis=2) for part in onto.split(value, runs, axis=2)]
    return onto.node("Concat", *parts, axis=2)
