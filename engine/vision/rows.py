"""Candidate rows as darknet holds boxes: one row for each box, with a score for each class.

Elsewhere in the engine, every combination of box and class is an entry, sorted by score. Darknet's
own outputs have the order that results from sorting the rows class by class.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.vision.boxes import Boxes, Suppression
from engine.vision.nms import survivors

_FIRST_SCORE = 5  # after x, y, w, h and objectness


def suppress_rows(candidates: Array, suppression: Suppression) -> Array:
    """Return the rows in darknet's order, with the scores that are suppressed set to zero."""
    rows, order = suppress_in_place(candidates, suppression)
    return rows[order]


def suppress_in_place(candidates: Array, suppression: Suppression) -> tuple[Array, Array]:
    """Do the same in the given order; also return the numbers of the rows in darknet's order."""
    rows, order = candidates.copy(), np.arange(len(candidates))
    for column in np.flatnonzero((rows[:, _FIRST_SCORE:] > 0).any(axis=0)) + _FIRST_SCORE:
        order = order[np.argsort(-rows[order, column], kind="stable")]
        best = order[: np.count_nonzero(rows[:, column] > 0)]
        one_class = np.zeros(len(best), np.int64)
        ranked = Boxes(rows[best, :4], rows[best, column], one_class, rows[best, 4])
        rows[best[~survivors(ranked, suppression)], column] = 0
    return rows, order


def split_by_objectness(candidates: Array, suppression: Suppression) -> tuple[Array, Array]:
    """Return the rows that survive when the class is ignored, and the others, best first."""
    rows = candidates[np.argsort(-candidates[:, 4], kind="stable")]
    one_class = np.zeros(len(rows), np.int64)
    kept = survivors(Boxes(rows[:, :4], rows[:, 4], one_class, rows[:, 4]), suppression)
    return rows[kept], rows[~kept]


def boxes_of(rows: Array, *, min_score: float = 0.0) -> Boxes:
    """Return an entry for each score above `min_score`, in the order of the rows."""
    numbers, class_ids = np.nonzero(rows[:, _FIRST_SCORE:] > min_score)
    scores = rows[numbers, _FIRST_SCORE + class_ids]
    return Boxes(rows[numbers, :4], scores, class_ids, rows[numbers, 4])
