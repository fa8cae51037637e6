"""Detection layers in ONNX: their own output, and the rows that boxes are made of.

Rows are those of `ops.Head`, every cell's, and nothing is dropped: a threshold is the reader's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.export.values import softmax_runs
from engine.export.writer import Writer, writes
from engine.plan import ops

Array = NDArray[np.float32]


@writes(ops.YoloOutput)
def yolo_output(onto: Writer, op: ops.YoloOutput) -> str:
    grid = onto.reshape(onto[op.src], 0, op.anchors, op.box + 1 + op.classes, op.src.shape.area)
    parts = _CENTRE_AND_EXTENT if op.box == 4 else _WITH_DEVIATIONS
    lengths = [*(length for length, _, _ in parts), 1 + op.classes]
    values = []
    for value, (_, is_centre, is_extent) in zip(
        onto.split(grid, lengths, axis=2), [*parts, (0, False, False)], strict=True
    ):
        if not (op.raw or is_extent):
            value = onto.node("Sigmoid", value)
        if is_centre:
            value = onto.scaled(value, op.scale_x_y, (1 - op.scale_x_y) / 2)
        values.append(value)
    return onto.shaped(onto.node("Concat", *values, axis=2), op.out.shape)


# Entries of a box: how many, whether they are of its centre, whether of its extent.
_CENTRE_AND_EXTENT = ((2, True, False), (2, False, True))
_DEVIATION = (1, False, False)
_WITH_DEVIATIONS = (
    *((1, True, False), _DEVIATION, (1, True, False), _DEVIATION),
    *((1, False, True), _DEVIATION, (1, False, True), _DEVIATION),
)


@writes(ops.RegionOutput)
def region_output(onto: Writer, op: ops.RegionOutput) -> str:
    entries = op.coords + 1 + op.classes
    value = onto.node("Transpose", onto[op.src], perm=[0, 2, 3, 1])
    value = onto.reshape(value, 0, op.src.shape.area * op.anchors, entries)
    box, objectness, classes = onto.split(value, (op.coords, 1, op.classes), axis=2)
    if not op.background:
        objectness = onto.node("Sigmoid", objectness)
    if op.runs:
        rows = op.src.shape.area * op.anchors
        length = sum(op.runs)
        classes = onto.reshape(classes, 0, rows * op.classes // length, length)
        classes = onto.reshape(softmax_runs(onto, classes, op.runs), 0, rows, op.classes)
    return onto.shaped(onto.node("Concat", box, objectness, classes, axis=2), op.out.shape)


# ---------------------------------------------------------------- rows


@writes(ops.YoloHead)
def yolo_head(onto: Writer, head: ops.YoloHead) -> str:
    _, height, width = head.src.shape.sides
    count, box = len(head.anchors), 8 if head.sigmas else 4
    entries = box + 1 + head.classes
    value = onto.reshape(onto[head.src], 0, count, entries, height * width)
    value = onto.node("Transpose", value, perm=[0, 3, 1, 2])
    value = onto.reshape(value, 0, height * width * count, entries)
    values, objectness, classes = onto.split(value, (box, 1, head.classes), axis=2)
    scores = onto.node("Mul", classes, objectness)
    if head.sigmas:
        parts = onto.split(values, (1,) * 8, axis=2)
        values = onto.node("Concat", *parts[::2], axis=2)
        sigmas = onto.node("Add", onto.node("Add", parts[1], parts[3]), parts[5])
        mean = onto.scaled(onto.node("Add", sigmas, parts[7]), 0.25)
        scores = onto.node("Mul", scores, onto.scaled(mean, -1, 1))

    centre, extent = onto.split(values, (2, 2), axis=2)
    centre = _in_grid(onto, centre, width, height, count)
    if head.new_coords:
        doubled = onto.scaled(extent, 2)
        extent = onto.node("Mul", doubled, doubled)
    else:
        extent = onto.node("Exp", extent)
    anchors = np.divide(head.anchors, head.network)
    extent = onto.node("Mul", extent, _each_cell(onto, anchors, height * width))
    if head.point != "center":
        half = onto.scaled(extent, 0.5 if head.point == "left_top" else -0.5)
        centre = onto.node("Add", centre, half)
    return onto.node("Concat", centre, extent, objectness, scores, axis=2)


@writes(ops.RegionHead)
def region_head(onto: Writer, head: ops.RegionHead) -> str:
    """Objectness is part of the scores already, and 1 in its own column."""
    if head.tree_parents:
        onto.refuse("decoded boxes of a tree of classes")
    width, height = head.grid
    count = len(head.anchors)
    cells = width * height
    value = onto.reshape(onto[head.src], 0, cells * count, head.coords + 1 + head.classes)
    parts = onto.split(value, (2, 2, head.coords - 4, 1, head.classes), axis=2)
    centre, extent, _, objectness, classes = parts
    if head.classfix == -1:
        is_low = onto.node("Less", objectness, onto.number(0.5))
        objectness = onto.node("Where", is_low, onto.number(0), objectness)
    scores = onto.node("Mul", classes, objectness)
    centre = _in_grid(onto, onto.node("Sigmoid", centre), width, height, count)
    anchors = np.divide(head.anchors, head.grid)
    extent = onto.node("Mul", onto.node("Exp", extent), _each_cell(onto, anchors, cells))
    ones = onto.scaled(onto.node("Mul", objectness, onto.number(0)), 1, 1)
    return onto.node("Concat", centre, extent, ones, scores, axis=2)


@writes(ops.GridHead)
def grid_head(onto: Writer, head: ops.GridHead) -> str:
    cells, count = head.side**2, head.boxes
    lengths = (cells * head.classes, cells * count, cells * count * 4)
    value = onto.reshape(onto[head.src], 0, sum(lengths))
    classes, objectness, boxes = onto.split(value, lengths, axis=1)
    classes = onto.reshape(classes, 0, cells, 1, head.classes)
    scores = onto.node("Mul", classes, onto.reshape(objectness, 0, cells, count, 1))
    scores = onto.reshape(scores, 0, cells * count, head.classes)
    boxes = onto.reshape(boxes, 0, cells * count, 4)
    centre, extent = onto.split(boxes, (2, 2), axis=2)
    centre = _in_grid(onto, centre, head.side, head.side, count)
    if head.square_root:
        extent = onto.node("Mul", extent, extent)
    objectness = onto.reshape(objectness, 0, cells * count, 1)
    return onto.node("Concat", centre, extent, objectness, scores, axis=2)


def _in_grid(onto: Writer, centre: str, width: int, height: int, count: int) -> str:
    """From the corner of its cell to the corner of the picture, whose sides are 1."""
    row, column = np.divmod(np.arange(width * height), width)
    corner = np.repeat(np.stack([column, row], axis=1), count, axis=0)[None].astype(np.float32)
    sides = onto.array(np.array([[[width, height]]], np.float32))
    return onto.node("Div", onto.node("Add", centre, onto.array(corner)), sides)


def _each_cell(onto: Writer, anchors: NDArray[np.floating], cells: int) -> str:
    """The anchors of every cell."""
    return onto.array(np.tile(anchors, (cells, 1))[None].astype(np.float32))
