"""The confusion matrix of a detector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.arrays import Array
from engine.evaluate.examples import Example
from engine.evaluate.iou import iou_ltwh


def confusion(
    examples: Sequence[Example], classes: int, *, iou_threshold: float, threshold: float
) -> Array:
    """Return (classes + 1, classes + 1): objects of a row's class detected as a column's class.

    The last row counts detections without an object, the last column objects without a detection.
    Each detection with a score above `threshold`, best first, is matched with the unmatched object
    of the largest overlap, of any class. A detection that covers only optional objects is ignored.
    """
    counts = np.zeros((classes + 1, classes + 1), np.int64)
    for example in examples:
        objects = example.objects
        above = np.flatnonzero(example.detections.scores > threshold)
        order = above[np.argsort(-example.detections.scores[above], kind="stable")]
        found = example.detections.take(order)
        iou = iou_ltwh(found.boxes, objects.boxes, objects.optional)
        free = ~objects.optional
        for row, class_id in zip(iou, found.class_ids.tolist(), strict=True):
            with_free = np.where(free, row, 0.0)
            if len(row) and with_free.max() >= iou_threshold:
                target = int(with_free.argmax())
                free[target] = False
                counts[objects.class_ids[target], class_id] += 1
            elif not (row[objects.optional] >= iou_threshold).any():
                counts[classes, class_id] += 1
        counts[:, classes] += np.bincount(objects.class_ids[free], minlength=classes + 1)
    return counts


def most_confused(counts: Array, most: int) -> list[tuple[int, int, int]]:
    """Return the most frequent confusions as (class of the object, detected class, count)."""
    classes = len(counts) - 1
    mixed = counts[:classes, :classes] * ~np.eye(classes, dtype=bool)
    order = np.argsort(-mixed, axis=None, kind="stable")[:most]
    pairs = zip(*np.unravel_index(order, mixed.shape), strict=True)
    return [(int(a), int(b), int(mixed[a, b])) for a, b in pairs if mixed[a, b]]
