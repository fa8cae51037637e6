"""The overlap of boxes (IoU): the area that two boxes share, relative to the area of both."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array


def iou_table(first: Array, second: Array) -> Array:
    """Return the IoU of each box of `first` with each of `second`; both are (n, 4) of edges."""
    edges, others = np.ascontiguousarray(first.T), np.ascontiguousarray(second.T)
    shared = _shared(edges[0], edges[2], others[0], others[2])
    shared *= _shared(edges[1], edges[3], others[1], others[3])
    total = np.add.outer(_area(edges), _area(others))
    total -= shared
    np.divide(shared, total, out=shared, where=total > 0)
    return shared


def _shared(low: Array, high: Array, other_low: Array, other_high: Array) -> Array:
    """Return the length that each pair of intervals shares."""
    length = np.minimum.outer(high, other_high)
    length -= np.maximum.outer(low, other_low)
    return np.maximum(length, 0, out=length)


def _area(edges: Array) -> Array:
    left, top, right, bottom = edges
    return np.asarray((right - left) * (bottom - top))
