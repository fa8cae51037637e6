"""COCO's average precision, equal to pycocotools.

It covers ten IoU thresholds, four ranges of object area and 101 recall thresholds. A detection is
matched with the unmatched object of the largest overlap, preferably one that must be found. Crowds
can be matched repeatedly. Detections matched with an ignored object do not count, nor do unmatched
ones outside the area range. One difference is intended: pycocotools mistakes an annotation with the
id 0 for no match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.evaluate.examples import ClassExample, Detections, Objects
from engine.evaluate.iou import iou_ltwh
from engine.evaluate.ranking import MatchedDetections, Ranking, falling_envelope

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALL_THRESHOLDS = np.linspace(0.0, 1.0, 101)
MAX_DETECTIONS = (1, 10, 100)  # per class and picture
AREA_RANGES = {
    "all": (0.0, 1e10),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, 1e10),
}


@dataclass(frozen=True, eq=False)
class Tables:
    """Precision and recall; -1 if there is no object to find."""

    precision: Array  # (IoU, recall, class, area), with MAX_DETECTIONS[-1]
    recall: Array  # (IoU, class, area, maximum of detections)

    def summary(self) -> dict[str, float | None]:
        """Return the twelve numbers that pycocotools prints."""
        areas = list(AREA_RANGES)
        sized = areas[1:]
        return {
            "AP": mean(self.precision[..., 0]),
            "AP50": mean(self.precision[IOU_THRESHOLDS == 0.5, ..., 0]),
            "AP75": mean(self.precision[IOU_THRESHOLDS == 0.75, ..., 0]),
            **{f"AP {area}": mean(self.precision[..., areas.index(area)]) for area in sized},
            **{
                f"AR {most}": mean(self.recall[..., 0, column])
                for column, most in enumerate(MAX_DETECTIONS)
            },
            **{f"AR {area}": mean(self.recall[..., areas.index(area), -1]) for area in sized},
        }

    def of_class(self, class_id: int) -> float | None:
        return mean(self.precision[:, :, class_id, 0])


def tables(classes: Sequence[Sequence[ClassExample]]) -> Tables:
    """Compute the tables for the examples of each class."""
    shape = len(IOU_THRESHOLDS), len(classes), len(AREA_RANGES)
    precision = np.full((shape[0], len(RECALL_THRESHOLDS), *shape[1:]), -1.0)
    recall = np.full((*shape, len(MAX_DETECTIONS)), -1.0)
    for class_id, examples in enumerate(classes):
        top = [_TopDetections.of(example) for example in examples]
        for column, area in enumerate(AREA_RANGES.values()):
            precision[:, :, class_id, column], recall[:, class_id, column] = _rows(top, area)
    return Tables(precision, recall)


def rank(examples: Sequence[ClassExample], iou: float) -> Ranking:
    """Rank the detections of one class, for any area, at one IoU threshold."""
    parts, objects = [], 0
    for example in examples:
        match = _Match.of(_TopDetections.of(example), np.array([iou]), AREA_RANGES["all"])
        counted = ~match.ignored[0]
        overlaps = np.where(match.hits[0], match.overlaps[0], 0.0)
        columns = (match.scores, match.hits[0], overlaps, match.indices)
        parts.append(MatchedDetections(*(each[counted] for each in columns)))
        objects += match.objects
    return Ranking.of(parts, objects)


def at_iou(ranking: Ranking) -> float | None:
    """Return the average precision of one class at the IoU threshold of its ranking."""
    if not ranking.objects:
        return None
    return float(np.mean(ranking.precision_at(RECALL_THRESHOLDS)))


def mean(values: Array) -> float | None:
    known = values[values > -1]
    return float(np.mean(known)) if known.size else None


@dataclass(frozen=True, eq=False)
class _TopDetections:
    """The best detections of one class in one picture, and their IoU with its objects."""

    detections: Detections  # by descending score
    indices: Array
    objects: Objects
    iou: Array  # (detections, objects)

    @classmethod
    def of(cls, example: ClassExample) -> _TopDetections:
        scores, objects = example.detections.scores, example.objects
        best = np.argsort(-scores, kind="stable")[: MAX_DETECTIONS[-1]]
        detections = example.detections.take(best)
        iou = iou_ltwh(detections.boxes, objects.boxes, objects.optional)
        return cls(detections, example.indices[best], objects, iou)


@dataclass(frozen=True, eq=False)
class _Match:
    """The outcome for each detection at each IoU threshold, for objects of one range of area."""

    scores: Array  # (detections,) descending
    indices: Array
    hits: Array  # (IoU thresholds, detections) bool
    ignored: Array  # (IoU thresholds, detections) bool
    overlaps: Array  # (IoU thresholds, detections): IoU with the matched object
    objects: int  # the number of objects to find

    @classmethod
    def of(cls, top: _TopDetections, thresholds: Array, area: tuple[float, float]) -> _Match:
        detections, objects = top.detections, top.objects
        ignore = objects.optional | _outside(objects.areas, area)
        ignored_last = np.argsort(ignore, kind="stable")
        ignore, iou = ignore[ignored_last], top.iou[:, ignored_last]
        matched = _matched_objects(iou, thresholds, ignore, objects.optional[ignored_last])
        is_matched = matched >= 0
        if len(objects):
            ignored = is_matched & ignore[matched]
            overlaps = iou[np.arange(len(detections)), matched]
        else:
            ignored, overlaps = np.zeros_like(is_matched), np.zeros(is_matched.shape)
        areas = detections.boxes[:, 2] * detections.boxes[:, 3]
        ignored |= ~is_matched & _outside(areas, area)
        return cls(
            detections.scores,
            top.indices,
            is_matched & ~ignored,
            ignored,
            overlaps,
            objects=int(np.count_nonzero(~ignore)),
        )


def _matched_objects(iou: Array, thresholds: Array, ignore: Array, crowd: Array) -> Array:
    """Return (IoU thresholds, detections): the object matched with each detection, or -1."""
    matched = np.full((len(thresholds), len(iou)), -1)
    near: list[list[tuple[int, float]]] = [[] for _ in iou]
    for number, each in np.argwhere(iou >= min(thresholds[0], _ALMOST_ONE)).tolist():
        near[number].append((each, float(iou[number, each])))
    if not any(near):
        return matched
    for row, threshold in enumerate(thresholds.tolist()):
        used: set[int] = set()
        for number, candidates in enumerate(near):
            chosen, most = -1, min(threshold, _ALMOST_ONE)
            for each, overlap in candidates:
                if each in used and not crowd[each]:
                    continue
                if chosen >= 0 and ignore[each] and not ignore[chosen]:
                    break
                if overlap >= most:
                    chosen, most = each, overlap
            if chosen >= 0:
                used.add(chosen)
                matched[row, number] = chosen
    return matched


_ALMOST_ONE = 1 - 1e-10  # the IoU of equal boxes may be less than 1 because of rounding


def _outside(areas: Array, area: tuple[float, float]) -> Array:
    return np.asarray((areas < area[0]) | (areas > area[1]))


def _rows(top: Sequence[_TopDetections], area: tuple[float, float]) -> tuple[Array, Array]:
    """Return precision (IoU, recall) and recall (IoU, maximum) of one class and range of area."""
    matches = [_Match.of(each, IOU_THRESHOLDS, area) for each in top]
    objects = sum(match.objects for match in matches)
    if not objects:
        return np.array(-1.0), np.array(-1.0)
    recall = np.zeros((len(IOU_THRESHOLDS), len(MAX_DETECTIONS)))
    for column, most in enumerate(MAX_DETECTIONS):
        hits, _ = _accumulate(matches, most)
        if hits.shape[1]:
            recall[:, column] = hits[:, -1] / objects
    precision = np.array(list(_interpolate(*_accumulate(matches, MAX_DETECTIONS[-1]), objects)))
    return precision, recall


def _accumulate(matches: Sequence[_Match], most: int) -> tuple[Array, Array]:
    """Return (IoU thresholds, detections): running hits and misses by descending score."""
    order = np.argsort(-np.concatenate([each.scores[:most] for each in matches]), kind="stable")
    hits = np.concatenate([each.hits[:, :most] for each in matches], axis=1)[:, order]
    ignored = np.concatenate([each.ignored[:, :most] for each in matches], axis=1)[:, order]
    return (
        np.cumsum(hits, axis=1).astype(float),
        np.cumsum(~hits & ~ignored, axis=1).astype(float),
    )


def _interpolate(hits: Array, misses: Array, objects: int) -> Iterator[Array]:
    """Yield for each IoU threshold the best precision at each recall threshold or beyond."""
    for true, false in zip(hits, misses, strict=True):
        precision = falling_envelope(true / (false + true + np.spacing(1)))
        columns = np.searchsorted(true / objects, RECALL_THRESHOLDS, side="left")
        yield np.append(precision, 0.0)[columns]
