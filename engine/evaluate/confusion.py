"""Which classes are taken for which: objects against what was found in their place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.arrays import Array
from engine.evaluate.examples import Example
from engine.evaluate.overlap import in_pixels


def confusion(
    examples: Sequence[Example], classes: int, *, overlap: float, threshold: float
) -> Array:
    """(classes + 1, classes + 1): objects of a row's class found as a column's class.

    The last row counts what was found where nothing is, the last column what was not found. Each
    detection above `threshold`, the best first, takes the free object that it overlaps most,
    whatever its class. What covers nothing but an optional object is not counted.
    """
    counts = np.zeros((classes + 1, classes + 1), np.int64)
    for example in examples:
        there = example.objects
        believed = np.flatnonzero(example.found.scores > threshold)
        order = believed[np.argsort(-example.found.scores[believed], kind="stable")]
        found = example.found.take(order)
        shared = in_pixels(found.boxes, there.boxes, there.optional)
        free = ~there.optional
        for row, class_id in zip(shared, found.class_ids.tolist(), strict=True):
            open_to_it = np.where(free, row, 0.0)
            if len(row) and open_to_it.max() >= overlap:
                target = int(open_to_it.argmax())
                free[target] = False
                counts[there.class_ids[target], class_id] += 1
            elif not (row[there.optional] >= overlap).any():
                counts[classes, class_id] += 1
        counts[:, classes] += np.bincount(there.class_ids[free], minlength=classes + 1)
    return counts


def most_confused(counts: Array, most: int) -> list[tuple[int, int, int]]:
    """Pairs of different classes (object's, found as, how often), the commonest first."""
    classes = len(counts) - 1
    mixed = counts[:classes, :classes] * ~np.eye(classes, dtype=bool)
    order = np.argsort(-mixed, axis=None, kind="stable")[:most]
    pairs = zip(*np.unravel_index(order, mixed.shape), strict=True)
    return [(int(a), int(b), int(mixed[a, b])) for a, b in pairs if mixed[a, b]]
