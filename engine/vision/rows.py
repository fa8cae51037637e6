"""Candidate rows as darknet holds boxes: one row for each box, with a score for each class.

Elsewhere in the engine every box and class is an entry of its own, sorted by score. Darknet's own
outputs follow the order in which its sorting class by class leaves the rows.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.vision.boxes import Boxes, Suppression
from engine.vision.nms import survivors

_FIRST_SCORE = 5  # after x, y, w, h and objectness


def suppress_rows(candidates: Array, suppression: Suppression) -> Array:
    """Return the rows in darknet's order, with the scores that are suppressed set to zero."""
    rows = candidates.copy()
    for column in np.flatnonzero((rows[:, _FIRST_SCORE:] > 0).any(axis=0)) + _FIRST_SCORE:
        rows = rows[np.argsort(-rows[:, column], kind="stable")]
        count = int(np.count_nonzero(rows[:, column] > 0))
        best = rows[:count]
        one_class = np.zeros(count, np.int64)
        ranked = Boxes(best[:, :4], best[:, column], one_class, best[:, 4])
        best[~survivors(ranked, suppression), column] = 0
    return rows


def suppress_by_objectness(candidates: Array, suppression: Suppression) -> Array:
    """Return the rows that survive when the class is ignored, the best objectness first."""
    rows = candidates[np.argsort(-candidates[:, 4], kind="stable")]
    one_class = np.zeros(len(rows), np.int64)
    return rows[survivors(Boxes(rows[:, :4], rows[:, 4], one_class, rows[:, 4]), suppression)]


def boxes_of(rows: Array, *, min_score: float = 0.0) -> Boxes:
    """Return an entry for each score above `min_score`, in the order of the rows."""
    numbers, class_ids = np.nonzero(rows[:, _FIRST_SCORE:] > min_score)
    scores = rows[numbers, _FIRST_SCORE + class_ids]
    return Boxes(rows[numbers, :4], scores, class_ids, rows[numbers, 4])
