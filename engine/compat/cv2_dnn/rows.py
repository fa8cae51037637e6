"""The rows that OpenCV's Region layer returns: x, y, w, h, objectness, a score for each class.

Boxes are centres and sizes relative to the input. Scores are multiplied by the objectness, and set
to zero unless they exceed the section's `thresh` (by default 0.2 for [yolo], 0.001 for [region]).
[region] also applies NMS, as does [yolo] with the option nms_threshold.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.compat.cv2_dnn.suppression import kept_boxes
from engine.darknet.anchors import select_anchors
from engine.darknet.graph import Node
from engine.darknet.layers.region import Region
from engine.darknet.layers.yolo import Yolo

_REGION_NMS = 0.4  # hard-coded in OpenCV
_CUT_OBJECTNESS = 0.5  # classfix=-1 sets objectness below this to zero


def rows_of(node: Node, out: Array) -> Array:
    """Return (rows, 5 + classes) for a batch of one picture, otherwise (pictures, rows, ...)."""
    with np.errstate(over="ignore", invalid="ignore"):
        rows = _yolo(node, out) if isinstance(node.layer, Yolo) else _region(node, out)
    return rows[0] if len(rows) == 1 else rows


def _yolo(node: Node, out: Array) -> Array:
    layer = node.layer
    assert isinstance(layer, Yolo)
    anchors = np.array(layer.selected_anchors(), np.float32).reshape(-1, 2)
    count, _, height, width = out.shape
    values = out.reshape(count, len(anchors), 5 + layer.classes, height, width)
    values = values.transpose(0, 3, 4, 1, 2).copy()
    sides = values[..., 2:4]
    sides = sides * sides * 4 if layer.new_coords else np.exp(sides)
    values[..., 2:4] = sides * anchors / np.array(layer.network_size, np.float32)
    _place(values, values[..., 0:2])
    return _cut(node, values, values[..., 4:5], default=0.2, nms=0.0)


def _region(node: Node, out: Array) -> Array:
    layer = node.layer
    assert isinstance(layer, Region)
    anchors = np.array(select_anchors(layer, layer.anchors, layer.num), np.float32).reshape(-1, 2)
    count, _, height, width = out.shape
    values = out.reshape(count, height, width, len(anchors), layer.coords + 1 + layer.classes)
    if layer.coords != 4:
        raise layer.error("coords", f"expected 4 for OpenCV's rows, got {layer.coords}")
    values = values.copy()
    sides = np.exp(values[..., 2:4]) * anchors
    values[..., 2:4] = sides / np.array((width, height), np.float32)
    _place(values, 1 / (1 + np.exp(-values[..., 0:2])))
    objectness = values[..., 4:5]
    if layer.classfix == -1:
        objectness = np.where(objectness < _CUT_OBJECTNESS, np.float32(0), objectness)
    return _cut(node, values, objectness, default=0.001, nms=_REGION_NMS)


def _place(values: Array, inside: Array) -> None:
    """Convert positions inside a cell to positions in the input."""
    height, width = values.shape[1:3]
    cells = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)
    values[..., 0:2] = (cells[:, :, None] + inside) / np.array((width, height), np.float32)


def _cut(node: Node, values: Array, objectness: Array, *, default: float, nms: float) -> Array:
    threshold = np.float32(_option(node, "thresh", default))
    nms = _option(node, "nms_threshold", nms)
    scores = values[..., 5:] * objectness
    values[..., 5:] = np.where(scores > threshold, scores, np.float32(0))
    rows = values.reshape(len(values), -1, values.shape[-1])
    if nms > 0:
        for picture in rows:
            _suppress(picture, float(threshold), nms)
    return rows


def _suppress(rows: Array, threshold: float, nms: float) -> None:
    boxes = rows[:, :4].astype(np.float64)
    boxes[:, :2] -= boxes[:, 2:] / 2
    for number in np.flatnonzero((rows[:, 5:] > threshold).any(axis=0)).tolist():
        scores = rows[:, 5 + number]
        kept = kept_boxes(boxes, scores, threshold, nms)
        best = scores[kept]
        scores[:] = 0
        scores[kept] = best


def _option(node: Node, key: str, default: float) -> float:
    found = node.layer.context.section.first.get(key)
    if found is None:
        return default
    try:
        return float(found.value)
    except ValueError:
        raise node.layer.error(key, f"expected a number, got {found.value!r}") from None
