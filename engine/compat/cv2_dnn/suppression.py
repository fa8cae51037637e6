"""NMSBoxes() and NMSBoxesBatched(), with OpenCV's order, overlap and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.compat.cv2_dnn.old_and_new import Found, found
from engine.errors import InputError

_BLOCK = 64
_SHRINKS_ABOVE = 0.5  # `eta` lowers only thresholds above this


def NMSBoxes(
    bboxes: Sequence[Any] | Array | None,
    scores: Sequence[float] | Array | None,
    score_threshold: float,
    nms_threshold: float,
    eta: float = 1.0,
    top_k: int = 0,
) -> Found:
    """Return the indices of the boxes (left, top, width, height) to keep, best score first."""
    if not score_threshold >= 0:
        raise InputError(f"score_threshold: expected 0 or more, got {score_threshold:g}")
    _check_limits(nms_threshold, eta)
    boxes, numbers = _checked(bboxes, scores)
    return found(_kept(boxes, numbers, score_threshold, nms_threshold, eta, top_k), np.int32)


def NMSBoxesBatched(
    bboxes: Sequence[Any] | Array | None,
    scores: Sequence[float] | Array | None,
    class_ids: Sequence[int] | Array | None,
    score_threshold: float,
    nms_threshold: float,
    eta: float = 1.0,
    top_k: int = 0,
) -> Found:
    """Do the same as NMSBoxes(), but only boxes of one class suppress each other.

    As in OpenCV, a negative score threshold is accepted.
    """
    _check_limits(nms_threshold, eta)
    boxes, numbers = _checked(bboxes, scores)
    classes = _array(class_ids, np.float64).reshape(-1)
    if len(classes) != len(boxes):
        raise InputError(f"class_ids: expected {len(boxes)}, one for each box, got {len(classes)}")
    # As in OpenCV, boxes of different classes are moved apart until they cannot overlap.
    with np.errstate(invalid="ignore"):
        starts = boxes[:, :2]
        apart = _largest(np.hstack([starts, starts + boxes[:, 2:]])) + 1
        moved = boxes.copy()
        moved[:, :2] += (classes * apart)[:, None]
    return found(_kept(moved, numbers, score_threshold, nms_threshold, eta, top_k), np.int32)


def _largest(coordinates: Array) -> float:
    """Return the largest value, at least 0; as in OpenCV, NaN discards all values before it."""
    values = coordinates.reshape(-1)
    hidden = np.flatnonzero(np.isnan(values))
    if not len(hidden):
        return float(values.max(initial=0))
    rest = values[hidden[-1] + 1 :]
    return float(rest.max()) if len(rest) else np.nan


def kept_boxes(boxes: Any, scores: Any, score_threshold: float, nms_threshold: float) -> Array:
    """Return the indices of NMSBoxes() as an array, which may be empty."""
    return np.asarray(NMSBoxes(boxes, scores, score_threshold, nms_threshold), np.intp).reshape(-1)


def _check_limits(nms_threshold: float, eta: float) -> None:
    if not nms_threshold >= 0:
        raise InputError(f"nms_threshold: expected 0 or more, got {nms_threshold:g}")
    if not eta > 0:
        raise InputError(f"eta: expected more than 0, got {eta:g}")


def _checked(bboxes: Any, scores: Any) -> tuple[Array, Array]:
    try:
        boxes = _array(bboxes, np.float64).reshape(-1, 4)
        numbers = _array(scores, np.float32).reshape(-1)
    except (TypeError, ValueError):
        raise InputError("bboxes: expected rows of left, top, width and height") from None
    if len(boxes) != len(numbers):
        raise InputError(f"scores: expected {len(boxes)}, one for each box, got {len(numbers)}")
    return boxes, numbers


def _array(values: Any, kind: type[np.generic]) -> Array:
    """Return an array, which is empty for None as in OpenCV."""
    return np.asarray(() if values is None else values, kind)


def _kept(
    boxes: Array, scores: Array, least: float, threshold: float, eta: float, top_k: int
) -> Array:
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > np.float32(least)]
    if top_k > 0:
        order = order[:top_k]
    limit = np.float32(threshold)
    if eta < 1:
        return _kept_with_falling_limit(boxes[order], order, limit, np.float32(eta))
    kept = [order[:0]]
    while len(order):  # in blocks, because thousands of boxes may survive
        block, order = order[:_BLOCK], order[_BLOCK:]
        block = block[_survivors(_covers(boxes[block], boxes[block], limit))]
        kept.append(block)
        if len(order):
            order = order[~_covers(boxes[block], boxes[order], limit).any(axis=0)]
    return np.concatenate(kept)


def _survivors(covers: Array) -> Array:
    """Return a mask of the boxes in a block that are not covered by a better surviving one."""
    alive = np.ones(len(covers), bool)
    for number in range(len(covers)):
        if alive[number]:
            alive[number + 1 :] &= ~covers[number, number + 1 :]
    return alive


def _kept_with_falling_limit(boxes: Array, order: Array, limit: Any, eta: Any) -> Array:
    """Suppress boxes one by one, as each box that is kept lowers the limit."""
    kept: list[int] = []
    survivors = np.empty_like(boxes)
    for number, box in enumerate(boxes):
        if kept and _covers(box[None], survivors[: len(kept)], limit).any():
            continue
        survivors[len(kept)] = box
        kept.append(number)
        if limit > _SHRINKS_ABOVE:
            limit = np.float32(limit * eta)
    return np.asarray(order[kept])


def _covers(first: Array, second: Array, limit: Any) -> Array:
    """Return which pairs overlap too much to keep both; an overlap of NaN counts as too much."""
    covers: Array = ~(_overlaps(first, second) <= limit)
    return covers


def _overlaps(first: Array, second: Array) -> Array:
    """Return the IoU of all pairs; two boxes without an area count as identical.

    Steps and precision are OpenCV's, because thresholds may equal exact overlaps.
    """
    (ax, ay, aw, ah), (bx, by, bw, bh) = first.T[:, :, None], second.T[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        width, height = _shared(ax, aw, bx, bw), _shared(ay, ah, by, bh)
        is_empty = (width <= 0) | (height <= 0) | _has_no_area(aw, ah) | _has_no_area(bw, bh)
        both = np.where(is_empty, 0, width * height)
        total = aw * ah + bw * bh
        distance = 1 - both / (total - both)
    distance = np.where(total <= np.finfo(np.float64).eps, 0, distance)
    return np.float32(1) - distance.astype(np.float32)


def _has_no_area(width: Array, height: Array) -> Array:
    return (width <= 0) | (height <= 0)


def _shared(start: Array, length: Array, other: Array, other_length: Array) -> Array:
    """Return the length that two ranges have in common, or a negative one."""
    is_first = start < other
    before = np.where(is_first, length, other_length) - np.abs(start - other)
    shared: Array = np.minimum(before, np.where(is_first, other_length, length))
    return shared
