"""Ops that move values without computing, as ONNX nodes."""

from __future__ import annotations

from engine.export.graph_builder import GraphBuilder, exports
from engine.plan import ops


@exports(ops.Concat)
def concat(graph: GraphBuilder, op: ops.Concat) -> str:
    if len({graph.varies(part.src) for part in op.parts}) > 1:
        graph.require_fixed("maps, one of them of a fixed size", op.out)
    parts = []
    for part in sorted(op.parts, key=lambda part: part.at):
        value = graph[part.src]
        if part.count != part.src.shape.channels:
            value = graph.slice(value, part.first, part.first + part.count, 1)
        parts.append(value)
    return parts[0] if len(parts) == 1 else graph.node("Concat", *parts, axis=1)


@exports(ops.Reshape)
def reshape(graph: GraphBuilder, op: ops.Reshape) -> str:
    graph.require_fixed("a map that becomes a vector", op.src)
    return graph.reshape_to(graph[op.src], op.out.shape)


@exports(ops.Upsample)
def upsample(graph: GraphBuilder, op: ops.Upsample) -> str:
    value = graph.node(
        "Resize",
        graph[op.src],
        "",
        graph.factors([1, 1, op.stride, op.stride]),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    return graph.scale(value, op.scale)


@exports(ops.BlockSum)
def block_sum(graph: GraphBuilder, op: ops.BlockSum) -> str:
    sides = [op.stride] * 2
    means = graph.node("AveragePool", graph[op.src], kernel_shape=sides, strides=sides)
    return graph.scale(means, op.stride**2 * op.scale)


@exports(ops.Reorg)
def reorg(graph: GraphBuilder, op: ops.Reorg) -> str:
    """Export a transposition from (q, H, s, W, s) to (s, s, q, H, W), or back."""
    stride, (channels, height, width) = op.stride, op.grid.sides
    rows = graph.side(op.src, 2, height)
    columns = -1 if graph.varies(op.src) else width
    quotient = channels // stride**2
    sides: tuple[int | str, ...]
    if op.reverse:
        sides, order = (stride, stride, quotient, rows, columns), (3, 4, 1, 5, 2)
    else:
        sides, order = (quotient, rows, stride, columns, stride), (3, 5, 1, 2, 4)
    value = graph.reshape(graph[op.src], 0, *sides)
    value = graph.node("Transpose", value, perm=[0, *order])
    return graph.reshape_map(value, op.out.shape, op.src)


@exports(ops.Crop)
def crop(graph: GraphBuilder, op: ops.Crop) -> str:
    graph.require_fixed("a crop of a fixed size", op.src)
    value = graph.slice(graph[op.src], op.top, op.top + op.out.shape.height, 2)
    value = graph.slice(value, op.left, op.left + op.out.shape.width, 3)
    return graph.scale(value, op.scale, op.shift)
