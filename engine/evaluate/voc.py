"""Pascal VOC's average precision: at eleven recalls (2007), or the area under the curve (2010).

Detections are processed by descending score. Each is matched with the object of its picture with
the largest overlap, if that is large enough; a second detection of an object is a miss. Detections
of difficult objects are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.evaluate.examples import ClassExample
from engine.evaluate.iou import iou_ltwh
from engine.evaluate.ranking import MatchedDetections, Ranking

# Multiples of 0.1 as the official code computes them: 3 * 0.1 is slightly more than 3 / 10.
_RECALLS = np.arange(11) * 0.1


def rank(examples: Sequence[ClassExample], iou: float) -> Ranking:
    """Rank the detections of one class at one IoU threshold."""
    objects = sum(int(np.count_nonzero(~each.objects.optional)) for each in examples)
    return Ranking.of((_match(each, iou) for each in examples), objects)


def eleven_points(ranking: Ranking) -> float | None:
    if not ranking.objects:
        return None
    best = np.append(ranking.envelope(), 0.0)
    return float(np.mean(best[np.searchsorted(ranking.recall, _RECALLS, side="left")]))


def area(ranking: Ranking) -> float | None:
    if not ranking.objects:
        return None
    return float(np.sum(np.diff(ranking.recall, prepend=0.0) * ranking.envelope()))


def _match(example: ClassExample, threshold: float) -> MatchedDetections:
    order = np.argsort(-example.detections.scores, kind="stable")
    detections = example.detections.take(order)
    hits = np.zeros(len(detections), bool)
    counted = np.ones(len(detections), bool)
    overlaps = np.zeros(len(detections))
    if len(example.objects):
        iou = iou_ltwh(detections.boxes, example.objects.boxes)
        nearest = iou.argmax(axis=1)
        most = iou.max(axis=1)
        is_enough = most >= threshold
        counted = ~(is_enough & example.objects.optional[nearest])
        used: set[int] = set()
        for number in np.flatnonzero(is_enough & counted).tolist():
            target = int(nearest[number])
            if target not in used:
                used.add(target)
                hits[number], overlaps[number] = True, most[number]
    columns = (detections.scores, hits, overlaps, example.indices[order])
    return MatchedDetections(*(each[counted] for each in columns))
