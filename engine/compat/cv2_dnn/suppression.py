"""NMSBoxes() and NMSBoxesBatched(), with OpenCV's order, overlap and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.compat.cv2_dnn.old_and_new import Items
from engine.errors import InputError

_SHRINKS_ABOVE = 0.5  # the threshold that `eta` shrinks


def NMSBoxes(
    bboxes: Sequence[Any] | Array,
    scores: Sequence[float] | Array,
    score_threshold: float,
    nms_threshold: float,
    eta: float = 1.0,
    top_k: int = 0,
) -> Items:
    """Return the indices of the boxes (left, top, width, height) to keep, best score first."""
    boxes, numbers = _checked(bboxes, scores)
    return Items.of(_kept(boxes, numbers, score_threshold, nms_threshold, eta, top_k), np.int32)


def NMSBoxesBatched(
    bboxes: Sequence[Any] | Array,
    scores: Sequence[float] | Array,
    class_ids: Sequence[int] | Array,
    score_threshold: float,
    nms_threshold: float,
    eta: float = 1.0,
    top_k: int = 0,
) -> Items:
    """Do the same as NMSBoxes(), but only boxes of one class suppress each other."""
    boxes, numbers = _checked(bboxes, scores)
    classes = np.asarray(class_ids, np.float64).reshape(-1)
    if len(classes) != len(boxes):
        raise InputError(f"class_ids: expected {len(boxes)}, one for each box, got {len(classes)}")
    # As in OpenCV, boxes of different classes are moved apart until they cannot overlap.
    apart = (boxes[:, :2] + boxes[:, 2:]).max(initial=0) + 1
    moved = boxes + np.outer(classes * apart, (1, 1, 0, 0))
    return Items.of(_kept(moved, numbers, score_threshold, nms_threshold, eta, top_k), np.int32)


def _checked(bboxes: Any, scores: Any) -> tuple[Array, Array]:
    try:
        boxes = np.asarray(bboxes, np.float64).reshape(-1, 4)
        numbers = np.asarray(scores, np.float32).reshape(-1)
    except (TypeError, ValueError):
        raise InputError("bboxes: expected rows of left, top, width and height") from None
    if len(boxes) != len(numbers):
        raise InputError(f"scores: expected {len(boxes)}, one for each box, got {len(numbers)}")
    return boxes, numbers


def _kept(
    boxes: Array, scores: Array, least: float, threshold: float, eta: float, top_k: int
) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > np.float32(least)]
    if top_k > 0:
        order = order[:top_k]
    kept: list[int] = []
    limit = np.float32(threshold)
    sizes = boxes[:, 2] * boxes[:, 3]
    ends = boxes[:, :2] + boxes[:, 2:]
    for index in order.tolist():
        if kept and (_overlaps(boxes, ends, sizes, index, kept) > limit).any():
            continue
        kept.append(index)
        if eta < 1 and limit > _SHRINKS_ABOVE:
            limit = np.float32(limit * np.float32(eta))
    return kept


def _overlaps(boxes: Array, ends: Array, sizes: Array, index: int, others: list[int]) -> Array:
    """Return the IoU of a box with others; two boxes without an area count as the same."""
    low = np.maximum(boxes[index, :2], boxes[others, :2])
    sides = np.minimum(ends[index], ends[others]) - low
    both = np.where((sides > 0).all(axis=1), sides[:, 0] * sides[:, 1], 0)
    total = sizes[index] + sizes[others]
    with np.errstate(divide="ignore", invalid="ignore"):
        overlap = both / (total - both)
    return np.where(total <= np.finfo(np.float64).eps, 1, overlap).astype(np.float32)
