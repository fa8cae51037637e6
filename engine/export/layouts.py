"""The outputs of a model: darknet's maps, or boxes in the layouts that other programs decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import InputError, suggest
from engine.export.graph_builder import GraphBuilder
from engine.export.heads import Rows, decode, sides_as_floats
from engine.export.suppression import Best, Nms, best_boxes
from engine.plan import ops
from engine.plan.build import Plan
from engine.vision.postprocess import MAX_COORDINATE

RAW = "raw"  # the output of each detection layer, as darknet has it

Sides = tuple[int | str, ...]  # a dynamic side has a name


@dataclass(frozen=True)
class Output:
    """An output of a model: a value of the graph with its name, shape, type and meaning."""

    name: str
    sides: Sides
    kind: type[np.generic]
    meaning: str
    value: str


def outputs(graph: GraphBuilder, plan: Plan, layout: str, nms: Nms | None) -> list[Output]:
    """Export the outputs of `plan`, without their batch size, in one of LAYOUTS."""
    if layout == RAW:
        return [_raw(graph, plan, tensor) for tensor in plan.outputs]
    if not plan.heads:
        return [_class_scores(graph, plan.outputs[0])]
    rows, count = _joined(graph, plan)
    if nms is None:
        return [_DECODED[layout](graph, plan, rows, count)]
    scores = graph.node("Mul", rows.classes, _allowed_objectness(graph, plan, rows, nms))
    best = best_boxes(graph, rows.boxes, scores, nms)
    return _SUPPRESSED[layout](graph, best, nms.max_detections)


def _allowed_objectness(graph: GraphBuilder, plan: Plan, rows: Rows, nms: Nms) -> str:
    """Return the objectness, or 0 for rows that the engine omits regardless of their scores."""
    extent = graph.reduce("Max", graph.node("Abs", rows.boxes), 2)
    is_allowed = graph.node("Less", extent, graph.number(MAX_COORDINATE))
    if all(isinstance(head, ops.YoloHead) for head in plan.heads):  # objectness is thresholded, too
        is_high = graph.node("Greater", rows.objectness, graph.number(nms.threshold))
        is_allowed = graph.node("And", is_allowed, is_high)
    return graph.node("Where", is_allowed, rows.objectness, graph.number(0))


def _class_scores(graph: GraphBuilder, tensor: ops.Tensor) -> Output:
    """Export the output of a classifier in the form of ultralytics' classifiers."""
    classes = tensor.shape.size
    value = graph.reshape(graph[tensor], 0, classes)
    return Output("output0", (classes,), np.float32, "probabilities of the classes", value)


def check_heads(plan: Plan, layout: str, nms: Nms | None) -> None:
    """Raise an InputError if a network has no detection layer and the layout needs one."""
    is_vector = plan.outputs[0].shape.area == 1
    has_own_form = layout == RAW or (layout in _OF_CLASSIFIERS and nms is None and is_vector)
    if not plan.heads and not has_own_form:
        wanted = f"layout {layout}" if nms is None else "nms"
        raise InputError(f"{wanted}: expected a network with a detection layer, got none")


def check_layout(layout: str, nms: Nms | None) -> None:
    """Raise an InputError unless the layout exists and supports NMS, if requested."""
    if layout not in LAYOUTS:
        hint = suggest(layout, LAYOUTS)
        raise InputError(f"layout: expected {', '.join(LAYOUTS)}, got {layout!r}.{hint}")
    if layout == RAW and nms is not None:
        expected = ", ".join(each for each in LAYOUTS if each != RAW)
        raise InputError(f"nms: expected the layout {expected}, got raw, which has no boxes")


def _raw(graph: GraphBuilder, plan: Plan, tensor: ops.Tensor) -> Output:
    number = plan.layers.index(tensor)
    channels, *sides = tensor.shape.sides
    if graph.varies(tensor):
        named: Sides = (f"layer_{number}_height", f"layer_{number}_width")
    else:
        named = tuple(sides)
    name = f"layer_{number}"
    meaning = "the output of the layer"
    return Output(name, (channels, *named), np.float32, meaning, graph[tensor])


# ---------------------------------------------------------------- rows


def _joined(graph: GraphBuilder, plan: Plan) -> tuple[Rows, int | str]:
    """Concatenate the rows of all heads, and count them; missing classes score zero."""
    classes = max(head.classes for head in plan.heads)
    parts = []
    for head in plan.heads:
        rows = decode(graph, head)
        missing = classes - head.classes
        padded = graph.pad(rows.classes, (0, 0, 0), (0, 0, missing), 0) if missing else rows.classes
        parts.append((rows.boxes, rows.objectness, padded, rows.column))
    joined = (concatenated(graph, each, axis=1) for each in zip(*parts, strict=True))
    count: int | str = sum(map(_row_count, plan.heads))
    return Rows(*joined), "rows" if graph.varies(plan.source) else count


def _row_count(head: ops.Head) -> int:
    if isinstance(head, ops.GridHead):
        return head.side**2 * head.boxes
    assert isinstance(head, (ops.YoloHead, ops.RegionHead)), head
    return head.src.shape.area * len(head.anchors)


def concatenated(graph: GraphBuilder, values: Sequence[str], axis: int) -> str:
    return values[0] if len(values) == 1 else graph.node("Concat", *values, axis=axis)


def _darknet(graph: GraphBuilder, plan: Plan, rows: Rows, count: int | str) -> Output:
    scores = graph.node("Mul", rows.classes, rows.objectness)
    value = graph.node("Concat", rows.boxes, rows.column, scores, axis=2)
    meaning = "x, y, w, h from 0 to 1, objectness, scores of the classes"
    return Output("detections", (count, 5 + _classes(plan)), np.float32, meaning, value)


def _yolov5(graph: GraphBuilder, plan: Plan, rows: Rows, count: int | str) -> Output:
    boxes = _in_pixels(graph, rows.boxes)
    value = graph.node("Concat", boxes, rows.objectness, rows.classes, axis=2)
    meaning = "x, y, w, h in pixels of the input, objectness, probabilities of the classes"
    return Output("output0", (count, 5 + _classes(plan)), np.float32, meaning, value)


def _yolov8(graph: GraphBuilder, plan: Plan, rows: Rows, count: int | str) -> Output:
    boxes = _in_pixels(graph, rows.boxes)
    scores = graph.node("Mul", rows.classes, rows.objectness)
    value = graph.node("Concat", boxes, scores, axis=2)
    value = graph.node("Transpose", value, perm=[0, 2, 1])
    meaning = "x, y, w, h in pixels of the input, scores of the classes"
    return Output("output0", (4 + _classes(plan), count), np.float32, meaning, value)


def _classes(plan: Plan) -> int:
    return max(head.classes for head in plan.heads)


def _in_pixels(graph: GraphBuilder, boxes: str) -> str:
    sides = sides_as_floats(graph, graph.source)
    return graph.node("Mul", boxes, graph.node("Concat", sides, sides, axis=0))


# ---------------------------------------------------------------- after NMS


def _arrays(graph: GraphBuilder, best: Best, most: int) -> list[Output]:
    boxes = "x, y, w, h from 0 to 1; the rest is 0"
    return [
        Output("boxes", (most, 4), np.float32, boxes, best.boxes),
        Output("scores", (most,), np.float32, "the best first; the rest is 0", best.scores),
        Output("classes", (most,), np.int64, "the rest is -1", best.classes),
        Output("count", (), np.int64, "the number of boxes", best.count),
    ]


def _rows_of_six(graph: GraphBuilder, best: Best, most: int) -> list[Output]:
    center, size = graph.split(_in_pixels(graph, best.boxes), (2, 2), axis=2)
    half = graph.scale(size, 0.5)
    corners = (graph.node(kind, center, half) for kind in ("Sub", "Add"))
    scores = graph.reshape(best.scores, 0, 0, 1)
    ids = graph.node("Max", graph.cast(best.classes, np.float32), graph.number(0))
    value = graph.node("Concat", *corners, scores, graph.reshape(ids, 0, 0, 1), axis=2)
    meaning = "left, top, right, bottom in pixels of the input, score, class; the rest is 0"
    return [Output("output0", (most, 6), np.float32, meaning, value)]


_DECODED: dict[str, Callable[[GraphBuilder, Plan, Rows, int | str], Output]] = {
    "darknet": _darknet,
    "yolov5": _yolov5,
    "yolov8": _yolov8,
}
_SUPPRESSED: dict[str, Callable[[GraphBuilder, Best, int], list[Output]]] = {
    "darknet": _arrays,
    "yolov5": _rows_of_six,
    "yolov8": _rows_of_six,
}
LAYOUTS = (RAW, *_DECODED)
_OF_CLASSIFIERS = ("yolov5", "yolov8")
