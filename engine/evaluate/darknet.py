"""The numbers of darknet's `detector map`, including its peculiarities.

A detection is assigned to the object with the largest IoU above the threshold, in float32. Only the
first detection of an object is a hit: for the precision-recall curve, the one with the best score;
for the counts at a threshold, the first one in the detector's order. Detections of difficult
objects are excluded from the curve but are misses in the counts.

A class without objects has an average precision of 0, and the mean is over all classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.evaluate.examples import ClassExample, Detections
from engine.evaluate.iou import iou_xywh
from engine.evaluate.ranking import Counts, MatchedDetections, Ranking
from engine.vision.boxes import Suppression
from engine.vision.result import Result
from engine.vision.rows import boxes_of, suppress_rows

POINTS = (
    0,
    11,
    101,
)  # numbers of recalls at which precision is read; 0 is the area under the curve


def suppressed(result: Result, suppression: Suppression, classes: int) -> Detections:
    """Apply NMS to a result that was made without it; return the detections in darknet's order.

    Darknet sorts entire boxes class by class, so the last class determines which detection of an
    object comes first, and thereby the counts at a threshold.
    """
    boxes, first, row = np.unique(result.xywhn, axis=0, return_index=True, return_inverse=True)
    rows = np.zeros((len(boxes), 5 + classes), np.float32)
    rows[:, :4] = boxes
    best_last = slice(None, None, -1)  # keeps the best score of equal boxes and classes
    at = row.ravel()[best_last], 5 + result.class_ids[best_last]
    rows[at] = result.scores[best_last]
    found = boxes_of(suppress_rows(rows[np.argsort(first)], suppression))
    return Detections.from_relative(found.xywh, found.scores, found.class_ids, result.size)


def rank(examples: Sequence[ClassExample], iou: float) -> Ranking:
    """Rank the detections of one class at one IoU threshold."""
    parts, objects = [], 0
    for example in examples:
        assigned = _Assignment.of(example, iou)
        counted = ~assigned.difficult
        best = np.argsort(-example.detections.scores, kind="stable")
        hits = np.zeros(len(best), bool)
        hits[best] = _first_of_each(assigned.target[best])
        overlaps = np.where(hits, assigned.overlap, 0.0)
        columns = (example.detections.scores, hits, overlaps, example.indices)
        parts.append(MatchedDetections(*(each[counted] for each in columns)))
        objects += assigned.objects
    return Ranking.of(parts, objects)


def counts(examples: Sequence[ClassExample], iou: float, threshold: float) -> Counts:
    """Count hits and misses among the scores above `threshold`."""
    parts = []
    for example in examples:
        assigned = _Assignment.of(example, iou)
        above = example.detections.scores.astype(np.float32) > np.float32(threshold)
        hits = _first_of_each(assigned.target) & above
        true_positives = int(hits.sum())
        false_positives = int(above.sum()) - true_positives
        overlap = float(assigned.overlap[hits].sum())
        parts.append(Counts(assigned.objects, true_positives, false_positives, overlap))
    return Counts.total(parts)


def average_precisions(rankings: Sequence[Ranking], points: int) -> list[float]:
    """Return the average precision of each class, read at `points` recalls."""
    if points:
        return [_at_points(ranking, points) for ranking in rankings]
    return [_area(ranking) for ranking in rankings]


def _at_points(ranking: Ranking, points: int) -> float:
    if not ranking.objects:
        return 0.0
    # Darknet is compiled with -Ofast, which multiplies: 6 * (1 / 10) is above a recall of 0.6.
    recalls = np.arange(points) * (1 / (points - 1))
    return float(np.mean(ranking.precision_at(recalls)))


def _area(ranking: Ranking) -> float:
    if not ranking.objects:
        return 0.0
    return float(np.sum(np.diff(ranking.recall, prepend=0.0) * ranking.envelope()))


@dataclass(frozen=True, eq=False)
class _Assignment:
    """The object that each detection of one class in one picture is assigned to."""

    target: Array  # (detections,) the index of the object, or -1
    overlap: Array  # (detections,) IoU with it
    difficult: Array  # (detections,) bool: not assigned, but covers a difficult object
    objects: int

    @classmethod
    def of(cls, example: ClassExample, threshold: float) -> _Assignment:
        found = _relative_xywh(example.detections.boxes, example.size)
        boxes = _relative_xywh(example.objects.boxes, example.size)
        optional = example.objects.optional
        iou = iou_xywh(found, boxes[~optional])
        objects = iou.shape[1]
        target = np.full(len(found), -1)
        overlap = np.zeros(len(found))
        if objects:
            most = iou.max(axis=1)
            target = np.where(most > np.float32(threshold), iou.argmax(axis=1), -1)
            overlap = np.where(target >= 0, most, np.float32(0)).astype(np.float64)
        difficult = np.zeros(len(found), bool)
        if optional.any():
            covers = iou_xywh(found, boxes[optional]) > np.float32(threshold)
            difficult = (target < 0) & covers.any(axis=1)
        return cls(target, overlap, difficult, objects)


def _relative_xywh(boxes: Array, size: tuple[int, int]) -> Array:
    """Return centre, width and height relative to the picture, in float32."""
    relative = boxes / np.tile(np.asarray(size, np.float64), 2)
    relative[:, :2] += relative[:, 2:] / 2
    return relative.astype(np.float32)


def _first_of_each(targets: Array) -> Array:
    """Return a mask of the first occurrence of each target; -1 is no target."""
    first = np.zeros(len(targets), bool)
    first[np.unique(targets, return_index=True)[1]] = True
    return first & (targets >= 0)
