"""Turn a network's candidates into the boxes of a picture: undo the resizing, apply NMS, sort.

A candidate row is x, y, w, h (centre and size relative to the network's input), objectness, and one
score for each class, which is zero where darknet drops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from engine.arrays import Array
from engine.errors import ImageError, InputError
from engine.vision.boxes import NO_BOXES, NOT_NUMBERS, Boxes, Suppression
from engine.vision.nms import survivors_of_groups
from engine.vision.resize import Placement

MAX_SCORES = 10_000  # per picture, as the cost of suppression grows with the square

MAX_COORDINATE = 1e30  # beyond it float32 pixels overflow: exp() of a broken network's width

NO_NUMBERS = "scores: expected numbers, got NaN or infinity. The network's values overflow"
NO_PROBABILITIES = NO_NUMBERS.replace("scores", "probabilities")


def postprocess(
    candidates: Array,
    placement: Placement,
    suppression: Suppression | None = None,
    *,
    classes: Sequence[int] | None = None,
    max_detections: int | None = None,
) -> Boxes:
    """Return the boxes of one picture that survive suppression, the best score first.

    With `classes`, only their scores count. Boxes that are not finite are dropped, and only the
    best MAX_SCORES scores are considered. If any score is not finite, the result is NOT_NUMBERS.
    """
    (found,) = postprocess_batch(
        (candidates,),
        (placement,),
        suppression,
        classes=classes,
        max_detections=max_detections,
    )
    return found


def postprocess_batch(
    candidates: Sequence[Array],
    placements: Sequence[Placement],
    suppression: Suppression | None = None,
    *,
    classes: Sequence[int] | None = None,
    max_detections: int | None = None,
) -> list[Boxes]:
    """Return the result of postprocess() for every picture of a batch, in few NumPy calls."""
    if max_detections is not None and max_detections < 0:
        raise InputError(f"max_detections: expected 0 or more, got {max_detections}")
    counts = [len(each) for each in candidates]
    if not any(counts):
        return [NO_BOXES] * len(counts)
    pictures = np.arange(len(counts)).repeat(counts)
    parts = [np.asarray(each, np.float32) for each in candidates if len(each)]
    rows = np.concatenate(parts) if len(parts) > 1 else parts[0]
    rows = _relative_to_pictures(rows, pictures, placements)
    if classes is not None:
        rows = _only_classes(rows, classes)
    boxes, pictures, broken = _sorted_boxes(rows, pictures)
    chosen = suppression or Suppression()
    if chosen.threshold is not None:
        groups = pictures * (rows.shape[1] + 1)  # a number for each picture and class
        if not chosen.across_classes:
            groups = groups + boxes.class_ids
        kept = survivors_of_groups(boxes.xywh, groups, chosen)
        if not kept.all():
            boxes, pictures = boxes.take(kept), pictures[kept]
    if len(counts) == 1:
        return [boxes.select(max_detections=max_detections) if not broken else NOT_NUMBERS]
    ends = pictures.searchsorted(np.arange(len(counts)), side="right").tolist()
    starts = [0, *ends[:-1]]
    if max_detections is not None:
        ends = [min(pair) for pair in zip(ends, (s + max_detections for s in starts), strict=True)]
    # Copies, not views: a picture's boxes must not keep those of the whole batch in memory.
    return [
        NOT_NUMBERS if number in broken else boxes.take(np.arange(*pair))
        for number, pair in enumerate(zip(starts, ends, strict=True))
    ]


def apply_threshold(candidates: Array, threshold: float) -> Array:
    """Drop scores up to `threshold` from candidates whose scores do not exceed their objectness."""
    rows = candidates[~(candidates[:, 4] <= threshold)]  # keeps NaN, as decoding does
    rows[:, 5:] = np.where(rows[:, 5:] <= threshold, 0, rows[:, 5:])
    return rows


def relative_to_picture(candidates: Array, placement: Placement) -> Array:
    """Return the candidates with boxes relative to the picture instead of the network's input."""
    candidates = np.asarray(candidates, np.float32)
    return _relative_to_pictures(candidates, np.zeros(len(candidates), np.int64), (placement,))


def _relative_to_pictures(
    candidates: Array, pictures: Array, placements: Sequence[Placement]
) -> Array:
    """Do the same for several pictures; `pictures` holds the picture of each row."""
    if all(placement.kind == "stretch" for placement in placements):
        return candidates
    margin, ratio = np.array([margin_and_ratio(each) for each in placements])[pictures].transpose(
        1, 0, 2
    )
    placed = candidates.copy()
    with np.errstate(all="ignore"):  # a picture that was scaled to nothing divides by zero
        placed[:, 0:2] = (candidates[:, 0:2] - margin) / ratio
        placed[:, 2:4] = candidates[:, 2:4] * (1 / ratio)
    return placed


@lru_cache(maxsize=256)
def margin_and_ratio(placement: Placement) -> tuple[list[float], list[float]]:
    """Return the margin and the extent of the picture in the network's input, as (x, y) shares."""
    if placement.kind == "stretch":
        return [0.0, 0.0], [1.0, 1.0]
    network = np.array(placement.network, np.float64)
    inner = np.array(placement.inner, np.float64)
    # darknet uses the exact half of the margin, though the picture begins at a whole pixel
    margin = (network - inner) / 2 / network
    ratio = (inner / network).astype(np.float32).astype(np.float64)
    return margin.tolist(), ratio.tolist()


def _only_classes(candidates: Array, classes: Sequence[int]) -> Array:
    wanted = np.zeros(candidates.shape[1] - 5, bool)
    wanted[list(classes)] = True
    chosen = candidates.copy()
    with np.errstate(invalid="ignore"):  # values that are not finite become NaN, whatever the class
        chosen[:, 5:] *= wanted
    return chosen


def or_error(candidates: Array, picture: str) -> tuple[Array, ImageError | None]:
    """Return the candidates of a picture, or none and an error if a score is not finite."""
    if np.isfinite(candidates[:, 5:]).all():
        return candidates, None
    return candidates[:0], ImageError(f"{picture}: {NO_NUMBERS}")


def is_representable(candidates: Array) -> Array:
    """Return a mask of the rows whose boxes are finite and can be expressed in pixels."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.all(np.abs(candidates[:, :4]) < MAX_COORDINATE, axis=1))


def sorted_boxes(candidates: Array) -> Boxes:
    """Pair each candidate's box with each of its scores above zero, the best score first."""
    return _sorted_boxes(candidates, np.zeros(len(candidates), np.int64))[0]


def _sorted_boxes(candidates: Array, pictures: Array) -> tuple[Boxes, Array, set[int]]:
    """Do the same for several pictures in sequence; also return the picture of each box.

    The third value are the pictures with scores that are not finite.
    """
    broken: set[int] = set()
    with np.errstate(invalid="ignore"):
        above = ~(candidates[:, 5:] <= 0)
        rows, class_ids = np.divmod(np.flatnonzero(above), above.shape[1])
        scores, xywh = candidates[rows, 5 + class_ids], candidates[:, :4].take(rows, 0)
        if not (np.abs(xywh).max(initial=0) < MAX_COORDINATE and scores.max(initial=0) < np.inf):
            is_number = np.isfinite(scores)
            broken.update(pictures[rows[~is_number]].tolist())
            good = (np.abs(xywh) < MAX_COORDINATE).all(axis=1) & is_number
            rows, class_ids, scores, xywh = rows[good], class_ids[good], scores[good], xywh[good]
    pictures = pictures[rows]
    order = np.lexsort((-scores, pictures))
    if len(order) > MAX_SCORES:
        sorted_pictures = pictures[order]
        rank = np.arange(len(order)) - np.searchsorted(sorted_pictures, sorted_pictures)
        order = order[rank < MAX_SCORES]
    boxes = Boxes(xywh.take(order, 0), scores[order], class_ids[order], candidates[rows[order], 4])
    return boxes, pictures[order], broken
