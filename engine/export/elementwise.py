"""Elementwise ops and normalizations across channels, as ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.export.activations import activate
from engine.export.graph_builder import INPUT, GraphBuilder, exports
from engine.plan import ops
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@exports(ops.Normalise, in_float32=True)
def normalise(graph: GraphBuilder, op: ops.Normalise) -> str:
    arrays = map(graph.constant, (op.scale, op.bias, op.mean, op.variance))
    return graph.node("BatchNormalization", graph[op.src], *arrays, epsilon=1e-5)


@exports(ops.Activate)
def activation(graph: GraphBuilder, op: ops.Activate) -> str:
    return activate(graph, graph[op.src], op.activation)


@exports(ops.Add)
def add(graph: GraphBuilder, op: ops.Add) -> str:
    _require_equal_sizes(graph, *op.sources)
    first = op.sources[0]
    values = [
        _resized(graph, source, op.out.shape)
        if graph.have_equal_sizes(source, first)
        else _resized_at_run_time(graph, source, first)
        for source in op.sources
    ]
    if op.weights is not None:
        factors = graph.constant_values(op.weights)
        values = [
            graph.node("Mul", value, graph.table(factor.reshape(1, -1, 1, 1)))
            for value, factor in zip(values, factors, strict=True)
        ]
    total = values[0]
    for value in values[1:]:
        total = graph.node("Add", total, value)
    return activate(graph, total, op.activation)


def _resized(graph: GraphBuilder, source: Tensor, shape: Shape) -> str:
    """Return a source with `shape`: its flat values are padded with zeros or truncated.

    Between maps of the same height and width, whole channels are padded or truncated.
    """
    value = graph[source]
    is_flat = _has_other_sides(source.shape, shape)
    if is_flat:
        value = graph.reshape(value, 0, source.shape.size)
    count, wanted = (each.size if is_flat else each.channels for each in (source.shape, shape))
    if count > wanted:
        value = graph.slice(value, 0, wanted, 1)
    elif count < wanted:
        none = (0,) * (1 if is_flat else 3)
        value = graph.pad(value, (0, *none), (0, wanted - count, *none[1:]), 0)
    return graph.reshape_to(value, shape) if is_flat else value


def _resized_at_run_time(graph: GraphBuilder, source: Tensor, like: Tensor) -> str:
    """Do the same with the run-time shape of `like`: a plain Add would broadcast."""
    flat = graph.reshape(graph[source], 0, -1)
    sides = graph.node("Shape", graph[like])
    wanted = graph.reduce("Prod", graph.slice(sides, 1, 4, 0), 0)
    count = graph.slice(graph.node("Shape", flat), 1, 2, 0)
    missing = graph.node("Sub", wanted, count)  # negative padding truncates
    pads = graph.joined([0, 0, 0, missing])
    return graph.node("Reshape", graph.node("Pad", flat, pads, graph.number(0)), sides)


def _has_other_sides(first: Shape, second: Shape) -> bool:
    return first.sides[1:] != second.sides[1:]


@exports(ops.Multiply)
def multiply(graph: GraphBuilder, op: ops.Multiply) -> str:
    factor = graph[op.factor]
    if op.factor.shape.area > 1:
        _require_equal_sizes(graph, op.src, op.factor)
        if not graph.have_equal_sizes(op.src, op.factor):
            # The engine refuses such a size; here the run fails rather than broadcast.
            sides = (graph.side(op.src, axis) for axis in (2, 3))
            factor = graph.reshape(factor, 0, op.factor.shape.channels, *sides)
    return activate(graph, graph.node("Mul", graph[op.src], factor), op.activation)


def _require_equal_sizes(graph: GraphBuilder, *tensors: Tensor) -> None:
    if len({graph.varies(each) for each in tensors}) > 1:
        graph.require_fixed("a map of a fixed size", *tensors)


@exports(ops.Load)
def load(graph: GraphBuilder, op: ops.Load) -> str:
    """Export the constant, repeated for every row of the input."""
    batch = graph.slice(graph.node("Shape", INPUT), 0, 1, 0)
    sides = graph.node("Concat", batch, graph.integers(op.out.shape.sides), axis=0)
    values = graph.constant_values(op.constant).reshape(1, *op.out.shape.sides)
    return graph.node("Expand", graph.table(values), sides)


@exports(ops.NormaliseChannels, in_float32=True)
def normalise_channels(graph: GraphBuilder, op: ops.NormaliseChannels) -> str:
    value = graph[op.src]
    if op.kind == "softmax_max":
        value = graph.node("Sub", value, graph.reduce("Max", value, 1))
    value = graph.node("Relu" if op.kind == "positive" else "Exp", value)
    return graph.node("Div", value, graph.scale(graph.reduce("Sum", value, 1), 1, 1e-4))


@exports(ops.L2Norm, in_float32=True)
def l2_norm(graph: GraphBuilder, op: ops.L2Norm) -> str:
    value = graph[op.src]
    total = graph.reduce("Sum", graph.node("Mul", value, value), 1)
    return graph.node("Div", value, graph.node("Sqrt", total))


@exports(ops.LocalNorm, in_float32=True)
def local_norm(graph: GraphBuilder, op: ops.LocalNorm) -> str:
    """Export the sums of squares as a 1x1 convolution whose weights say how often each counts."""
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
    value = graph[op.src]
    squares = graph.node("Mul", value, value)
    sums = graph.node("Conv", squares, graph.table(op.alpha * counts[:, :, None, None]))
    norm = graph.scale(sums, 1, op.kappa)
    return graph.node("Mul", value, graph.node("Pow", norm, graph.number(-op.beta)))


@exports(ops.Softmax, in_float32=True)
def softmax(graph: GraphBuilder, op: ops.Softmax) -> str:
    graph.require_fixed("a softmax over a map", op.src)
    length = sum(op.runs)
    value = graph.scale(graph[op.src], 1 / op.temperature)
    value = softmax_runs(
        graph, graph.reshape(value, 0, op.src.shape.size // length, length), op.runs
    )
    return graph.reshape_to(value, op.out.shape)


def softmax_runs(graph: GraphBuilder, value: str, runs: Sequence[int]) -> str:
    """Apply softmax to consecutive runs of the last axis, whose lengths add up to it."""
    if len(runs) == 1:
        return graph.node("Softmax", value, axis=2)
    parts = [graph.node("Softmax", part, axis=2) for part in graph.split(value, runs, axis=2)]
    return graph.node("Concat", *parts, axis=2)
