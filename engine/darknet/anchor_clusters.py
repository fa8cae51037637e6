"""Anchors for a data set: k-means over the sizes of its boxes, as darknet's calc_anchors.

The distance of two sizes is 1 - IoU of boxes that share a corner, and a centre is the mean of its
boxes. Darknet starts once, from random boxes. Here several fixed starts are tried on a sample, and
the best one is continued on all boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.errors import InputError

_MAX_ITERATIONS = 1000  # darknet's
_STARTS = 10
_SAMPLE = 20_000  # boxes on which the starts are compared


@dataclass(frozen=True, eq=False)
class AnchorClusters:
    """`anchors` are (n, 2) widths and heights, the smallest area first."""

    anchors: Array
    average_iou: float  # mean IoU of each box with its best anchor
    iterations: int


def find_anchors(sides: Array, count: int) -> AnchorClusters:
    """Cluster the widths and heights of all boxes, (n, 2) in pixels of the network."""
    if not 1 <= count <= len(sides):
        raise InputError(f"anchors: expected 1 to {len(sides)}, the number of boxes, got {count}")
    sides = np.asarray(sides, np.float32)
    random = np.random.default_rng(0)
    sample = sides if len(sides) <= _SAMPLE else random.choice(sides, _SAMPLE, replace=False)
    best = max(
        (_refined(sample, random.choice(sample, count, replace=False)) for _ in range(_STARTS)),
        key=lambda found: found.average_iou,
    )
    if sample is not sides:
        best = _refined(sides, best.anchors)
    area = best.anchors[:, 0] * best.anchors[:, 1]
    return AnchorClusters(
        best.anchors[np.argsort(area, kind="stable")], best.average_iou, best.iterations
    )


def _refined(sides: Array, centres: Array) -> AnchorClusters:
    """Repeat assigning boxes and averaging until no box changes its centre."""
    centres = centres.copy()
    assigned = np.zeros(len(sides), np.int64)
    for iteration in range(_MAX_ITERATIONS + 1):
        overlaps = _iou(sides, centres)
        nearest = overlaps.argmax(axis=1)
        if (nearest == assigned).all() and iteration > 0:
            break
        assigned = nearest
        sizes = np.bincount(assigned, minlength=len(centres))
        for axis in range(2):
            sums = np.bincount(assigned, sides[:, axis], len(centres))
            centres[:, axis] = np.where(sizes, sums / np.maximum(sizes, 1), centres[:, axis])
    return AnchorClusters(centres, float(overlaps.max(axis=1).mean(dtype=np.float64)), iteration)


def _iou(sides: Array, centres: Array) -> Array:
    """Return the IoU of every box with every centre, (boxes, centres)."""
    common = np.minimum(sides[:, None], centres).prod(axis=2)
    union = sides.prod(axis=1)[:, None] + centres.prod(axis=1) - common
    return np.asarray(common / union)
