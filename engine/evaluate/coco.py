"""COCO's average precision, equal to pycocotools: ten overlaps, four ranges of area, 101 recalls.

A detection takes the free object that it overlaps most, and one that has to be found before one
that is optional or out of the range of area; crowds can be taken many times. Detections of an
ignored object do not count, nor do unmatched ones out of the range. One difference is meant:
pycocotools takes an annotation with the id 0 for no match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.evaluate.examples import Found, Objects, Scene
from engine.evaluate.overlap import in_pixels
from engine.evaluate.ranking import Judged, Ranking, falling

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)
MOST = (1, 10, 100)  # detections of a class in a picture
AREAS = {
    "all": (0.0, 1e10),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, 1e10),
}


@dataclass(frozen=True, eq=False)
class Tables:
    """Precision and recall, -1 where there is no object to find."""

    precision: Array  # (overlap, recall, class, area), of MOST[-1] detections
    recall: Array  # (overlap, class, area, most)

    def summary(self) -> dict[str, float | None]:
        """The twelve numbers that pycocotools prints."""
        areas = list(AREAS)
        sized = areas[1:]
        return {
            "AP": mean(self.precision[..., 0]),
            "AP50": mean(self.precision[OVERLAPS == 0.5, ..., 0]),
            "AP75": mean(self.precision[OVERLAPS == 0.75, ..., 0]),
            **{f"AP {area}": mean(self.precision[..., areas.index(area)]) for area in sized},
            **{f"AR {most}": mean(self.recall[..., 0, place]) for place, most in enumerate(MOST)},
            **{f"AR {area}": mean(self.recall[..., areas.index(area), -1]) for area in sized},
        }

    def of_class(self, class_id: int) -> float | None:
        return mean(self.precision[:, :, class_id, 0])


def tables(scenes: Sequence[Sequence[Scene]]) -> Tables:
    """The tables of all classes."""
    shape = len(OVERLAPS), len(scenes), len(AREAS)
    precision = np.full((shape[0], len(RECALLS), *shape[1:]), -1.0)
    recall = np.full((*shape, len(MOST)), -1.0)
    for class_id, of_class in enumerate(scenes):
        best = [_Best.of(scene) for scene in of_class]
        for place, area in enumerate(AREAS.values()):
            precision[:, :, class_id, place], recall[:, class_id, place] = _rows(best, area)
    return Tables(precision, recall)


def rank(scenes: Sequence[Scene], overlap: float) -> Ranking:
    """The detections of one class, any area, at one overlap."""
    judged, objects = [], 0
    for scene in scenes:
        match = _Match.of(_Best.of(scene), np.array([overlap]), AREAS["all"])
        counted = ~match.ignored[0]
        shared = np.where(match.hits[0], match.overlaps[0], 0.0)
        judged.append(
            Judged(*(each[counted] for each in (match.scores, match.hits[0], shared, match.places)))
        )
        objects += match.objects
    return Ranking.of(judged, objects)


def mean(values: Array) -> float | None:
    known = values[values > -1]
    return float(np.mean(known)) if known.size else None


@dataclass(frozen=True, eq=False)
class _Best:
    """The best detections of one class in one picture, and what they share with its objects."""

    found: Found  # by falling score
    places: Array
    objects: Objects
    shared: Array  # (found, objects)

    @classmethod
    def of(cls, scene: Scene) -> _Best:
        best = np.argsort(-scene.found.scores, kind="stable")[: MOST[-1]]
        found, objects = scene.found.take(best), scene.objects
        shared = in_pixels(found.boxes, objects.boxes, objects.optional)
        return cls(found, scene.places[best], objects, shared)


@dataclass(frozen=True, eq=False)
class _Match:
    """What became of them at each overlap, where objects of one range of area count."""

    scores: Array  # (found,) falling
    places: Array
    hits: Array  # (overlaps, found) bool
    ignored: Array  # (overlaps, found) bool
    overlaps: Array  # (overlaps, found) with the object taken
    objects: int  # that have to be found

    @classmethod
    def of(cls, best: _Best, least: Array, area: tuple[float, float]) -> _Match:
        found, there = best.found, best.objects
        ignore = there.optional | _outside(there.areas, area)
        ordinary_first = np.argsort(ignore, kind="stable")
        ignore, shared = ignore[ordinary_first], best.shared[:, ordinary_first]
        taken = _taken(shared, least, ignore, there.optional[ordinary_first])
        matched = taken >= 0
        if len(there):
            ignored = matched & ignore[taken]
            overlaps = shared[np.arange(len(found)), taken]
        else:
            ignored, overlaps = np.zeros_like(matched), np.zeros(matched.shape)
        ignored |= ~matched & _outside(found.boxes[:, 2] * found.boxes[:, 3], area)
        return cls(
            *(found.scores, best.places, matched & ~ignored, ignored, overlaps),
            objects=int(np.count_nonzero(~ignore)),
        )


def _taken(shared: Array, least: Array, ignore: Array, crowd: Array) -> Array:
    """(overlaps, found): the object that each detection takes, or -1."""
    taken = np.full((len(least), len(shared)), -1)
    near: list[list[tuple[int, float]]] = [[] for _ in shared]
    for number, each in np.argwhere(shared >= min(least[0], _ALMOST)).tolist():
        near[number].append((each, float(shared[number, each])))
    if not any(near):
        return taken
    for place, limit in enumerate(least.tolist()):
        used: set[int] = set()
        for number, candidates in enumerate(near):
            chosen, most = -1, min(limit, _ALMOST)
            for each, overlap in candidates:
                if each in used and not crowd[each]:
                    continue
                if chosen >= 0 and ignore[each] and not ignore[chosen]:
                    break
                if overlap >= most:
                    chosen, most = each, overlap
            if chosen >= 0:
                used.add(chosen)
                taken[place, number] = chosen
    return taken


_ALMOST = 1 - 1e-10  # boxes that are equal but for rounding overlap wholly


def _outside(areas: Array, area: tuple[float, float]) -> Array:
    return np.asarray((areas < area[0]) | (areas > area[1]))


def _rows(best: Sequence[_Best], area: tuple[float, float]) -> tuple[Array, Array]:
    """Precision (overlap, recall) and recall (overlap, most) of one class and range of area."""
    matches = [_Match.of(each, OVERLAPS, area) for each in best]
    objects = sum(match.objects for match in matches)
    if not objects:
        return np.array(-1.0), np.array(-1.0)
    recall = np.zeros((len(OVERLAPS), len(MOST)))
    for place, most in enumerate(MOST):
        hits, _ = _accumulated(matches, most)
        if hits.shape[1]:
            recall[:, place] = hits[:, -1] / objects
    precision = np.array(list(_interpolated(*_accumulated(matches, MOST[-1]), objects)))
    return precision, recall


def _accumulated(matches: Sequence[_Match], most: int) -> tuple[Array, Array]:
    """(overlaps, found): hits and misses so far, by falling score over all pictures."""
    order = np.argsort(-np.concatenate([each.scores[:most] for each in matches]), kind="stable")
    hits = np.concatenate([each.hits[:, :most] for each in matches], axis=1)[:, order]
    ignored = np.concatenate([each.ignored[:, :most] for each in matches], axis=1)[:, order]
    return (
        np.cumsum(hits, axis=1).astype(float),
        np.cumsum(~hits & ~ignored, axis=1).astype(float),
    )


def _interpolated(hits: Array, misses: Array, objects: int) -> Iterator[Array]:
    """At each overlap: the best precision at each recall of RECALLS or beyond."""
    for right, wrong in zip(hits, misses, strict=True):
        precision = falling(right / (wrong + right + np.spacing(1)))
        places = np.searchsorted(right / objects, RECALLS, side="left")
        yield np.append(precision, 0.0)[places]
