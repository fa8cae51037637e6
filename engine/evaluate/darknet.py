"""The numbers of darknet's `detector map`, its ways included.

A detection belongs to the object that it overlaps most and more than asked, in float32; of those
that belong to one object only the first counts. In the precision-recall curve that is the one of
the best score; in the counts at a threshold the first of its picture, in the detector's order.
Detections of difficult objects leave the curve, yet are wrong in the counts.
The area starts at the recall after the best of all detections of all classes: its own class loses
that first step. A class without objects has an average precision of 0, and the mean is over all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.evaluate.examples import Scene
from engine.evaluate.overlap import in_parts
from engine.evaluate.ranking import Counts, Judged, Ranking

POINTS = (0, 11, 101)  # recalls at which precision is read; 0 is the area under the curve


def rank(scenes: Sequence[Scene], overlap: float) -> Ranking:
    """The detections of one class at one overlap."""
    judged, objects = [], 0
    for scene in scenes:
        owned = _Owned.of(scene, overlap)
        kept = ~owned.difficult
        best = np.argsort(-scene.found.scores, kind="stable")
        hits = np.zeros(len(best), bool)
        hits[best] = _first_of_each(owned.target[best])
        shared = np.where(hits, owned.overlap, 0.0)
        columns = (scene.found.scores, hits, shared, scene.places)
        judged.append(Judged(*(each[kept] for each in columns)))
        objects += owned.objects
    return Ranking.of(judged, objects)


def counts(scenes: Sequence[Scene], overlap: float, threshold: float) -> Counts:
    """What is right and wrong when only scores above `threshold` are believed."""
    parts = []
    for scene in scenes:
        owned = _Owned.of(scene, overlap)
        believed = scene.found.scores.astype(np.float32) > np.float32(threshold)
        hits = _first_of_each(owned.target) & believed
        right = int(hits.sum())
        parts.append(
            Counts(
                *(owned.objects, right, int(believed.sum()) - right),
                overlap=float(owned.overlap[hits].sum()),
            )
        )
    return Counts.total(parts)


def average_precisions(rankings: Sequence[Ranking], points: int) -> list[float]:
    """Of each class, read at `points` recalls."""
    if points:
        return [_at_points(ranking, points) for ranking in rankings]
    tops = [
        (-each.scores[0], each.places[0], class_id)
        for class_id, each in enumerate(rankings)
        if len(each.scores)
    ]
    first = min(tops)[2] if tops else None
    return [_area(ranking, lost=first == class_id) for class_id, ranking in enumerate(rankings)]


def _at_points(ranking: Ranking, points: int) -> float:
    if not ranking.objects:
        return 0.0
    best = np.append(ranking.envelope(), 0.0)
    recalls = np.arange(points) / (points - 1)
    return float(np.mean(best[np.searchsorted(ranking.recall, recalls, side="left")]))


def _area(ranking: Ranking, *, lost: bool) -> float:
    if not ranking.objects:
        return 0.0
    steps = np.diff(ranking.recall, prepend=0.0) * ranking.envelope()
    return float(np.sum(steps[1:] if lost else steps))


@dataclass(frozen=True, eq=False)
class _Owned:
    """To which object each detection of one class in one picture belongs."""

    target: Array  # (found,) the object's number, or -1
    overlap: Array  # (found,) with it
    difficult: Array  # (found,) bool: belongs to none, but covers a difficult one
    objects: int

    @classmethod
    def of(cls, scene: Scene, least: float) -> _Owned:
        found = _in_parts(scene.found.boxes, scene.size)
        there = _in_parts(scene.objects.boxes, scene.size)
        optional = scene.objects.optional
        shared = in_parts(found, there[~optional])
        objects = shared.shape[1]
        target = np.full(len(found), -1)
        overlap = np.zeros(len(found))
        if objects:
            most = shared.max(axis=1)
            target = np.where(most > np.float32(least), shared.argmax(axis=1), -1)
            overlap = np.where(target >= 0, most, np.float32(0)).astype(np.float64)
        difficult = np.zeros(len(found), bool)
        if optional.any():
            over = in_parts(found, there[optional]) > np.float32(least)
            difficult = (target < 0) & over.any(axis=1)
        return cls(target, overlap, difficult, objects)


def _in_parts(boxes: Array, size: tuple[int, int]) -> Array:
    """Centre, width and height relative to the picture, in float32."""
    parts = boxes / np.tile(np.asarray(size, np.float64), 2)
    parts[:, :2] += parts[:, 2:] / 2
    return parts.astype(np.float32)


def _first_of_each(targets: Array) -> Array:
    """Where an object is named for the first time; -1 is none."""
    first = np.zeros(len(targets), bool)
    first[np.unique(targets, return_index=True)[1]] = True
    return first & (targets >= 0)
