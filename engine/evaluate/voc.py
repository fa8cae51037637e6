"""Pascal VOC's average precision: at eleven recalls (2007), or the area under the curve (2010 on).

Each detection, the best score first, goes to the object of its picture that it overlaps most, if
enough; a second one there is wrong. Detections of difficult objects do not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.evaluate.examples import Scene
from engine.evaluate.overlap import in_pixels
from engine.evaluate.ranking import Judged, Ranking

# As evaluators of VOC count them, 0.1 at a time: 3 * 0.1 is a little more than the recall 3 / 10.
_TENTHS = np.arange(11) * 0.1


def rank(scenes: Sequence[Scene], overlap: float) -> Ranking:
    """The detections of one class at one overlap."""
    objects = sum(int(np.count_nonzero(~scene.objects.optional)) for scene in scenes)
    return Ranking.of((_judge(scene, overlap) for scene in scenes), objects)


def eleven_points(ranking: Ranking) -> float | None:
    if not ranking.objects:
        return None
    best = np.append(ranking.envelope(), 0.0)
    return float(np.mean(best[np.searchsorted(ranking.recall, _TENTHS, side="left")]))


def area(ranking: Ranking) -> float | None:
    if not ranking.objects:
        return None
    return float(np.sum(np.diff(ranking.recall, prepend=0.0) * ranking.envelope()))


def _judge(scene: Scene, overlap: float) -> Judged:
    order = np.argsort(-scene.found.scores, kind="stable")
    found = scene.found.take(order)
    hits = np.zeros(len(found), bool)
    counted = np.ones(len(found), bool)
    overlaps = np.zeros(len(found))
    if len(scene.objects):
        shared = in_pixels(found.boxes, scene.objects.boxes)
        nearest = shared.argmax(axis=1)
        most = shared.max(axis=1)
        enough = most >= overlap
        counted = ~(enough & scene.objects.optional[nearest])
        used: set[int] = set()
        for number in np.flatnonzero(enough & counted).tolist():
            target = int(nearest[number])
            if target not in used:
                used.add(target)
                hits[number], overlaps[number] = True, most[number]
    return Judged(
        *(found.scores[counted], hits[counted], overlaps[counted], scene.places[order][counted])
    )
