"""Detection layers as ONNX nodes: their darknet outputs, and the decoded rows of `ops.Head`.

Decoded rows are not filtered; the consumer applies a threshold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.export.elementwise import softmax_runs
from engine.export.graph_builder import GraphBuilder, exports
from engine.plan import ops


@exports(ops.YoloOutput)
def yolo_output(graph: GraphBuilder, op: ops.YoloOutput) -> str:
    grid = graph.reshape(graph[op.src], 0, op.anchors, op.box + 1 + op.classes, op.src.shape.area)
    parts = _BOX if op.box == 4 else _BOX_WITH_SIGMAS
    lengths = [*(length for length, _, _ in parts), 1 + op.classes]
    values = []
    for value, (_, is_center, is_size) in zip(
        graph.split(grid, lengths, axis=2), [*parts, (0, False, False)], strict=True
    ):
        if not (op.raw or is_size):
            value = graph.node("Sigmoid", value)
        if is_center:
            value = graph.scale(value, op.scale_x_y, (1 - op.scale_x_y) / 2)
        values.append(value)
    return graph.reshape_to(graph.node("Concat", *values, axis=2), op.out.shape)


# The entries of a box: their number, whether they are its center, whether they are its size.
_BOX = ((2, True, False), (2, False, True))
_SIGMA = (1, False, False)
_BOX_WITH_SIGMAS = (
    *((1, True, False), _SIGMA, (1, True, False), _SIGMA),
    *((1, False, True), _SIGMA, (1, False, True), _SIGMA),
)


@exports(ops.RegionOutput)
def region_output(graph: GraphBuilder, op: ops.RegionOutput) -> str:
    entries = op.coords + 1 + op.classes
    value = graph.node("Transpose", graph[op.src], perm=[0, 2, 3, 1])
    value = graph.reshape(value, 0, op.src.shape.area * op.anchors, entries)
    box, objectness, classes = graph.split(value, (op.coords, 1, op.classes), axis=2)
    if not op.background:
        objectness = graph.node("Sigmoid", objectness)
    if op.runs:
        rows = op.src.shape.area * op.anchors
        length = sum(op.runs)
        classes = graph.reshape(classes, 0, rows * op.classes // length, length)
        classes = graph.reshape(softmax_runs(graph, classes, op.runs), 0, rows, op.classes)
    return graph.reshape_to(graph.node("Concat", box, objectness, classes, axis=2), op.out.shape)


# ---------------------------------------------------------------- decoded rows


@exports(ops.YoloHead)
def yolo_head(graph: GraphBuilder, head: ops.YoloHead) -> str:
    _, height, width = head.src.shape.sides
    count, box = len(head.anchors), 8 if head.sigmas else 4
    entries = box + 1 + head.classes
    value = graph.reshape(graph[head.src], 0, count, entries, height * width)
    value = graph.node("Transpose", value, perm=[0, 3, 1, 2])
    value = graph.reshape(value, 0, height * width * count, entries)
    values, objectness, classes = graph.split(value, (box, 1, head.classes), axis=2)
    scores = graph.node("Mul", classes, objectness)
    if head.sigmas:
        parts = graph.split(values, (1,) * 8, axis=2)
        values = graph.node("Concat", *parts[::2], axis=2)
        sigmas = graph.node("Add", graph.node("Add", parts[1], parts[3]), parts[5])
        mean = graph.scale(graph.node("Add", sigmas, parts[7]), 0.25)
        scores = graph.node("Mul", scores, graph.scale(mean, -1, 1))

    center, size = graph.split(values, (2, 2), axis=2)
    center = _in_grid(graph, center, width, height, count)
    if head.new_coords:
        doubled = graph.scale(size, 2)
        size = graph.node("Mul", doubled, doubled)
    else:
        size = graph.node("Exp", size)
    anchors = np.divide(head.anchors, head.network)
    size = graph.node("Mul", size, _per_cell(graph, anchors, height * width))
    if head.point != "center":
        half = graph.scale(size, 0.5 if head.point == "left_top" else -0.5)
        center = graph.node("Add", center, half)
    return graph.node("Concat", center, size, objectness, scores, axis=2)


@exports(ops.RegionHead)
def region_head(graph: GraphBuilder, head: ops.RegionHead) -> str:
    """Export decoded rows, with objectness in the scores and 1 in its own column."""
    if head.tree_parents:
        graph.reject("decoded boxes with a tree of classes")
    width, height = head.grid
    count = len(head.anchors)
    cells = width * height
    value = graph.reshape(graph[head.src], 0, cells * count, head.coords + 1 + head.classes)
    parts = graph.split(value, (2, 2, head.coords - 4, 1, head.classes), axis=2)
    center, size, _, objectness, classes = parts
    if head.classfix == -1:
        is_low = graph.node("Less", objectness, graph.number(0.5))
        objectness = graph.node("Where", is_low, graph.number(0), objectness)
    scores = graph.node("Mul", classes, objectness)
    center = _in_grid(graph, graph.node("Sigmoid", center), width, height, count)
    anchors = np.divide(head.anchors, head.grid)
    size = graph.node("Mul", graph.node("Exp", size), _per_cell(graph, anchors, cells))
    ones = graph.scale(graph.node("Mul", objectness, graph.number(0)), 1, 1)
    return graph.node("Concat", center, size, ones, scores, axis=2)


@exports(ops.GridHead)
def grid_head(graph: GraphBuilder, head: ops.GridHead) -> str:
    cells, count = head.side**2, head.boxes
    lengths = (cells * head.classes, cells * count, cells * count * 4)
    value = graph.reshape(graph[head.src], 0, sum(lengths))
    classes, objectness, boxes = graph.split(value, lengths, axis=1)
    classes = graph.reshape(classes, 0, cells, 1, head.classes)
    scores = graph.node("Mul", classes, graph.reshape(objectness, 0, cells, count, 1))
    scores = graph.reshape(scores, 0, cells * count, head.classes)
    boxes = graph.reshape(boxes, 0, cells * count, 4)
    center, size = graph.split(boxes, (2, 2), axis=2)
    center = _in_grid(graph, center, head.side, head.side, count)
    if head.square_root:
        size = graph.node("Mul", size, size)
    objectness = graph.reshape(objectness, 0, cells * count, 1)
    return graph.node("Concat", center, size, objectness, scores, axis=2)


def _in_grid(graph: GraphBuilder, center: str, width: int, height: int, count: int) -> str:
    """Convert centers from cell coordinates to those of a picture whose sides are 1."""
    row, column = np.divmod(np.arange(width * height), width)
    corner = np.repeat(np.stack([column, row], axis=1), count, axis=0)[None].astype(np.float32)
    sides = graph.table(np.array([[[width, height]]], np.float32))
    return graph.node("Div", graph.node("Add", center, graph.table(corner)), sides)


def _per_cell(graph: GraphBuilder, anchors: NDArray[np.floating], cells: int) -> str:
    """Return a table of the anchors, repeated for every cell."""
    return graph.table(np.tile(anchors, (cells, 1))[None].astype(np.float32))
