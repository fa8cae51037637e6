"""Small heads of every kind with input values, and their decoding by loops in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.plan import ops
from engine.plan.build import Plan, PlanBuilder
from engine.plan.ops import ConcatPart, Tensor
from engine.plan.shapes import Shape

Array = NDArray[Any]
Row = list[float]

ANCHORS = ((10.0, 14.0), (23.0, 27.0), (37.0, 58.0))
CELLS = ((1.08, 1.19), (3.42, 4.41))
NETWORK = (96, 64)
# two trees, the first of depth 3: 0 > 2, 3; 2 > 4, 5; and 1 > 6
PARENTS = (-1, -1, 0, 0, 2, 2, 1)
GRID = Shape(0, 4, 5)


def _tensor(channels: int) -> Tensor:
    return Tensor(1, Shape(channels, GRID.height, GRID.width))


def _yolo(**options: Any) -> ops.YoloHead:
    numbers = 9 if options.get("sigmas") else 5
    return ops.YoloHead(_tensor(3 * (numbers + 4)), 4, ANCHORS, NETWORK, **options)


def _region(classes: int = 4, coords: int = 4, **options: Any) -> ops.RegionHead:
    src = _tensor(2 * (coords + 1 + classes))
    grid = (GRID.width, GRID.height)
    return ops.RegionHead(src, classes, CELLS, grid, coords=coords, **options)


def _grid(**options: Any) -> ops.GridHead:
    return ops.GridHead(Tensor(1, Shape(9 * (4 + 2 * 5))), 4, side=3, boxes=2, **options)


HEADS: dict[str, ops.Head] = {
    "yolo": _yolo(),
    "yolo new_coords": _yolo(new_coords=True),
    "yolo one class": ops.YoloHead(_tensor(3 * 6), 1, ANCHORS, NETWORK),
    "gaussian": _yolo(sigmas=True),
    "gaussian left_top": _yolo(sigmas=True, point="left_top"),
    "gaussian right_bottom": _yolo(sigmas=True, point="right_bottom"),
    "region": _region(),
    "region classfix": _region(classfix=-1),
    "region coords": _region(coords=6),
    "region tree": _region(7, tree_parents=PARENTS),
    "region tree classfix": _region(7, tree_parents=PARENTS, classfix=-1),
    "grid": _grid(),
    "grid square_root": _grid(square_root=True),
}


def plan_of_two_and_one_class() -> Plan:
    """Return two [yolo] heads of the same values; the second has one class less."""
    builder = PlanBuilder(Shape(7, 4, 5))
    parts = (ConcatPart(builder.source, 0, 6, 0),)
    fewer = builder.emit(ops.Concat(builder.tensor(Shape(6, 4, 5)), parts))
    heads = []
    for src, classes in ((builder.source, 2), (fewer, 1)):
        out = builder.emit(ops.YoloOutput(builder.tensor(src.shape), src, 1, classes))
        builder.head(ops.YoloHead(out, classes, ANCHORS[:1], NETWORK))
        heads.append(out)
    return builder.build(heads, heads)


def values_for(head: ops.Head, seed: int = 0) -> Array:
    """Draw values like those of a detection layer: probabilities, and boxes of both signs."""
    random = np.random.default_rng(seed)
    values = random.random(head.src.shape.sides, dtype=np.float32)
    if isinstance(head, ops.YoloHead) and not head.new_coords:
        numbers = 9 if head.sigmas else 5
        by_anchor = values.reshape(len(head.anchors), numbers + head.classes, -1)
        extents = slice(4, 7, 2) if head.sigmas else slice(2, 4)
        by_anchor[:, extents] = by_anchor[:, extents] * 4 - 2
    elif isinstance(head, ops.GridHead):
        values = values * 2 - 1
    return values


def objectness_of(head: ops.Head, values: Array) -> Array:
    """Return a view of the objectness of every anchor in the values of a head."""
    flat = values.reshape(-1)
    if isinstance(head, ops.YoloHead):
        box = 8 if head.sigmas else 4
        return values.reshape(len(head.anchors), box + 1 + head.classes, -1)[0, box]
    if isinstance(head, ops.RegionHead):
        return flat[head.coords :: head.coords + 1 + head.classes]
    first = head.side * head.side * head.classes
    return flat[first : first + head.side * head.side * head.boxes]


def decode_by_loops(
    head: ops.Head, values: Array, *, threshold: float, hierarchy: float
) -> list[Row]:
    """Decode row by row, as darknet does; omit rows of regions and grids without a score."""
    rows: Iterator[Row]
    exact = values.astype(np.float64)
    if isinstance(head, ops.YoloHead):
        return list(_yolo_rows(head, exact, threshold))
    if isinstance(head, ops.RegionHead):
        rows = _region_rows(head, exact.reshape(-1), threshold, hierarchy)
    else:
        assert isinstance(head, ops.GridHead)
        rows = _grid_rows(head, exact.reshape(-1), threshold)
    return [row for row in rows if any(row[5:])]


def _yolo_rows(head: ops.YoloHead, values: Array, threshold: float) -> Iterator[Row]:
    _, height, width = values.shape
    box = 8 if head.sigmas else 4
    for y in range(height):
        for x in range(width):
            for number, (anchor_width, anchor_height) in enumerate(head.anchors):
                first = number * (box + 1 + head.classes)
                cell = [float(value) for value in values[first:, y, x]]
                objectness = cell[box]
                if not objectness > threshold:
                    continue
                step = 2 if head.sigmas else 1
                across, down = cell[2 * step], cell[3 * step]
                if head.new_coords:
                    w, h = (2 * across) ** 2 * anchor_width, (2 * down) ** 2 * anchor_height
                else:
                    w, h = math.exp(across) * anchor_width, math.exp(down) * anchor_height
                w, h = w / head.network[0], h / head.network[1]
                centre_x, centre_y = (x + cell[0]) / width, (y + cell[step]) / height
                shift = {"center": 0, "left_top": 0.5, "right_bottom": -0.5}[head.point]
                certainty = 1 - sum(cell[1:8:2]) / 4 if head.sigmas else 1
                scores = [
                    _score(objectness * cell[box + 1 + index] * certainty, threshold)
                    for index in range(head.classes)
                ]
                yield [centre_x + shift * w, centre_y + shift * h, w, h, objectness, *scores]


def _region_rows(
    head: ops.RegionHead, values: Array, threshold: float, hierarchy: float
) -> Iterator[Row]:
    width, height = head.grid
    length = head.coords + 1 + head.classes
    for index in range(width * height * len(head.anchors)):
        cell, anchor = divmod(index, len(head.anchors))
        numbers = [float(value) for value in values[index * length : (index + 1) * length]]
        objectness, classes = numbers[head.coords], numbers[head.coords + 1 :]
        if head.classfix == -1 and objectness < 0.5:
            objectness = 0
        if not head.tree_parents:
            scores = [_score(objectness * each, threshold) for each in classes]
        else:
            for child, parent in enumerate(head.tree_parents):
                if parent >= 0:
                    classes[child] *= classes[parent]
            scores = [0.0] * head.classes
            if objectness > threshold:
                for each in reversed(range(head.classes)):
                    if classes[each] > hierarchy:
                        scores[each] = classes[each]
                        break
        yield [
            (cell % width + _logistic(numbers[0])) / width,
            (cell // width + _logistic(numbers[1])) / height,
            math.exp(numbers[2]) * head.anchors[anchor][0] / width,
            math.exp(numbers[3]) * head.anchors[anchor][1] / height,
            1.0,
            *scores,
        ]


def _grid_rows(head: ops.GridHead, values: Array, threshold: float) -> Iterator[Row]:
    cells = head.side * head.side
    for cell in range(cells):
        for number in range(head.boxes):
            index = cell * head.boxes + number
            objectness = float(values[cells * head.classes + index])
            first = cells * (head.classes + head.boxes) + 4 * index
            x, y, w, h = (float(value) for value in values[first : first + 4])
            power = 2 if head.square_root else 1
            scores = [
                _score(objectness * float(values[cell * head.classes + each]), threshold)
                for each in range(head.classes)
            ]
            yield [
                (x + cell % head.side) / head.side,
                (y + cell // head.side) / head.side,
                w**power,
                h**power,
                objectness,
                *scores,
            ]


def _score(score: float, threshold: float) -> float:
    return score if score > threshold else 0.0


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
