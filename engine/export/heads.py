"""Detection layers as ONNX nodes: their darknet outputs, and the decoded rows of `ops.Head`.

Decoded rows are not filtered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.export.elementwise import softmax_runs
from engine.export.graph_builder import GraphBuilder, exports
from engine.plan import ops
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@exports(ops.YoloOutput, in_float32=True)
def yolo_output(graph: GraphBuilder, op: ops.YoloOutput) -> str:
    entries = op.box + 1 + op.classes
    grid = graph.reshape(graph[op.src], 0, op.anchors, entries, graph.area(op.src))
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
    return graph.reshape_map(graph.node("Concat", *values, axis=2), op.out.shape, op.src)


# The entries of a box: their number, whether they are its center, whether they are its size.
_BOX = ((2, True, False), (2, False, True))
_SIGMA = (1, False, False)
_BOX_WITH_SIGMAS = (
    *((1, True, False), _SIGMA, (1, True, False), _SIGMA),
    *((1, False, True), _SIGMA, (1, False, True), _SIGMA),
)


@exports(ops.RegionOutput, in_float32=True)
def region_output(graph: GraphBuilder, op: ops.RegionOutput) -> str:
    entries = op.coords + 1 + op.classes
    value = graph.node("Transpose", graph[op.src], perm=[0, 2, 3, 1])
    value = graph.reshape(value, 0, -1, entries)
    box, objectness, classes = graph.split(value, (op.coords, 1, op.classes), axis=2)
    if not op.background:
        objectness = graph.node("Sigmoid", objectness)
    if op.runs:
        classes = graph.reshape(classes, 0, -1, sum(op.runs))
        classes = graph.reshape(softmax_runs(graph, classes, op.runs), 0, -1, op.classes)
    value = graph.node("Concat", box, objectness, classes, axis=2)
    return graph.reshape_map(value, op.out.shape, op.src)


# ---------------------------------------------------------------- decoded rows


@dataclass(frozen=True)
class Rows:
    """The decoded boxes of heads, as names of values (batch, rows, columns).

    A score is objectness times class. Boxes are x, y, w, h: the centre and the size, relative to
    the network's input.
    """

    boxes: str
    objectness: str
    classes: str
    column: str  # the objectness as darknet outputs it


def decode(graph: GraphBuilder, head: ops.Head) -> Rows:
    """Export the decoder of a detection layer."""
    graph.begin_layer_of(head.src)
    return _DECODERS[type(head)](graph, head)


def _yolo(graph: GraphBuilder, head: ops.YoloHead) -> Rows:
    count, box = len(head.anchors), 8 if head.sigmas else 4
    entries = box + 1 + head.classes
    value = graph.reshape(graph[head.src], 0, count, entries, graph.area(head.src))
    value = graph.node("Transpose", value, perm=[0, 3, 1, 2])  # (batch, cells, anchors, entries)
    values, objectness, classes = graph.split(value, (box, 1, head.classes), axis=3)
    if head.sigmas:
        parts = graph.split(values, (1,) * 8, axis=3)
        values = graph.node("Concat", *parts[::2], axis=3)
        sigmas = graph.node("Add", graph.node("Add", parts[1], parts[3]), parts[5])
        mean = graph.scale(graph.node("Add", sigmas, parts[7]), 0.25)
        classes = graph.node("Mul", classes, graph.scale(mean, -1, 1))

    center, size = graph.split(values, (2, 2), axis=3)
    center = _in_grid(graph, center, head.src)
    if head.new_coords:
        doubled = graph.scale(size, 2)
        size = graph.node("Mul", doubled, doubled)
    else:
        size = graph.node("Exp", size)
    size = graph.node("Mul", size, _anchors_in_picture(graph, head))
    if head.point != "center":
        half = graph.scale(size, 0.5 if head.point == "left_top" else -0.5)
        center = graph.node("Add", center, half)
    return _rows(graph, head, center, size, objectness, classes)


def _anchors_in_picture(graph: GraphBuilder, head: ops.YoloHead) -> str:
    """Return the anchors relative to the network's input."""
    anchors = np.array(head.anchors, np.float64)[None, None]
    if not graph.varies(graph.source):
        return graph.table((anchors / head.network).astype(np.float32))
    sides = sides_as_floats(graph, graph.source)
    return graph.node("Div", graph.table(anchors.astype(np.float32)), sides)


def _region(graph: GraphBuilder, head: ops.RegionHead) -> Rows:
    if head.tree_parents:
        graph.reject("decoded boxes with a tree of classes")
    entries = head.coords + 1 + head.classes
    value = graph.reshape(graph[head.src], 0, -1, len(head.anchors), entries)
    others = (head.coords - 4,) if head.coords > 4 else ()
    parts = graph.split(value, (2, 2, *others, 1, head.classes), axis=3)
    center, size, *_, objectness, classes = parts
    if head.classfix == -1:
        is_low = graph.node("Less", objectness, graph.number(0.5))
        objectness = graph.node("Where", is_low, graph.number(0), objectness)
    center = _in_grid(graph, graph.node("Sigmoid", center), head.src)
    anchors = graph.table(np.array(head.anchors, np.float32)[None, None])
    size = graph.node("Mul", graph.node("Exp", size), anchors)
    size = graph.node("Div", size, sides_as_floats(graph, head.src))
    return _rows(graph, head, center, size, objectness, classes)


def _grid(graph: GraphBuilder, head: ops.GridHead) -> Rows:
    cells, count = head.side**2, head.boxes
    lengths = (cells * head.classes, cells * count, cells * count * 4)
    value = graph.reshape(graph[head.src], 0, sum(lengths))
    classes, objectness, boxes = graph.split(value, lengths, axis=1)
    classes = graph.reshape(classes, 0, cells, 1, head.classes)
    ones = graph.table(np.ones((1, 1, count, 1), np.float32))
    classes = graph.node("Mul", classes, ones)  # for every box of a cell
    objectness = graph.reshape(objectness, 0, cells, count, 1)
    boxes = graph.reshape(boxes, 0, cells, count, 4)
    center, size = graph.split(boxes, (2, 2), axis=3)
    center = _in_grid(graph, center, Tensor(0, Shape(1, head.side, head.side)))
    if head.square_root:
        size = graph.node("Mul", size, size)
    return _rows(graph, head, center, size, objectness, classes)


_DECODERS: dict[type[ops.Head], Callable[[GraphBuilder, Any], Rows]] = {
    ops.YoloHead: _yolo,
    ops.RegionHead: _region,
    ops.GridHead: _grid,
}


def _rows(
    graph: GraphBuilder, head: ops.Head, center: str, size: str, objectness: str, classes: str
) -> Rows:
    """Turn values (batch, cells, anchors, columns) into rows, by cell and then anchor."""
    box = graph.reshape(graph.node("Concat", center, size, axis=3), 0, -1, 4)
    objectness = graph.reshape(objectness, 0, -1, 1)
    classes = graph.reshape(classes, 0, -1, head.classes)
    column = objectness
    if isinstance(head, ops.RegionHead):  # darknet's scores include objectness; here it is 1
        column = graph.scale(graph.node("Mul", objectness, graph.number(0)), 1, 1)
    return Rows(box, objectness, classes, column)


def _in_grid(graph: GraphBuilder, center: str, src: Tensor) -> str:
    """Convert centers from cell coordinates to those of a picture whose sides are 1."""
    if graph.varies(src):
        height, width = (graph.joined([graph.side(src, axis)]) for axis in (2, 3))
        cells = graph.node("Mul", height, width)
        zero, one = graph.whole(0), graph.whole(1)
        cell = graph.node("Range", zero, graph.node("Squeeze", cells), one)
        pairs = (graph.node("Mod", cell, width), graph.node("Div", cell, width))
        stacked = graph.node("Concat", *(graph.reshape(each, -1, 1) for each in pairs), axis=1)
        corner = graph.cast(graph.reshape(stacked, 1, -1, 1, 2), np.float32)
    else:
        row, column = np.divmod(np.arange(src.shape.area), src.shape.width)
        corners = np.stack([column, row], axis=1).astype(np.float32)
        corner = graph.table(corners[None, :, None])
    return graph.node("Div", graph.node("Add", center, corner), sides_as_floats(graph, src))


def sides_as_floats(graph: GraphBuilder, tensor: Tensor) -> str:
    """Return width and height of a map as a float32 value of shape (2,)."""
    if not graph.varies(tensor):
        return graph.table(np.array([tensor.shape.width, tensor.shape.height], np.float32))
    sides = (graph.side(tensor, 3), graph.side(tensor, 2))
    return graph.cast(graph.joined(sides), np.float32)
