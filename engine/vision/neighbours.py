"""Find the boxes that touch others, without comparing all pairs.

Boxes are sorted into a grid with cells as large as most boxes; larger boxes go into coarser grids
with cells twice, four times, … as large. A box covers at most two cells in each direction, so only
cells around it can hold a box that touches it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.arrays import Array

_CELLS = 256  # maximum per row of the finest grid
_LEVELS = 9  # the coarsest grid is a single cell
_BOXES_AT_ONCE = 256
_PAIRS_AT_ONCE = 1 << 18  # bounds the memory


class Neighbours:
    """Boxes of several groups; only boxes of one group are neighbours."""

    def __init__(self, edges: Array, groups: Array, area: tuple[float, float]) -> None:
        """Sort boxes, given as left, top, right and bottom edges, in an area of this size.

        Boxes may lie outside the area, but finding these among many others is slow.
        """
        self._edges = [np.ascontiguousarray(each) for each in edges.T]
        low, high = np.minimum(edges[:, :2], edges[:, 2:]), np.maximum(edges[:, :2], edges[:, 2:])
        usual = np.median(np.nan_to_num(high - low), axis=0) if len(edges) else 0.0
        cell = np.maximum(usual, np.array(area, np.float64) / _CELLS)
        low, high = (
            np.clip(np.nan_to_num(each / cell), 0, _CELLS - 1).astype(np.int64)
            for each in (low, high)
        )
        self._low, self._high = low, high
        self._groups = np.unique(groups, return_inverse=True)[1].reshape(-1)
        levels = np.searchsorted(1 << np.arange(_LEVELS), (high - low).max(axis=1, initial=0))
        self._levels: list[tuple[int, Array, Array]] = []
        for level in np.unique(levels).tolist():
            members = np.flatnonzero(levels == level)
            column, row = (low[members] >> level).T
            keys = self._row_key(self._groups[members], row) + column
            order = keys.argsort(kind="stable")
            self._levels.append((level, keys[order], members[order]))

    def touching(self, boxes: Array) -> Iterator[tuple[Array, Array]]:
        """Yield the pairs of one of `boxes`, in order, and any box that overlaps it."""
        for start in range(0, len(boxes), _BOXES_AT_ONCE):
            block = boxes[start : start + _BOXES_AT_ONCE]
            for members, first, starts, counts in self._ranges(block):
                for part in _slices(counts):
                    lengths = counts[part]
                    offsets = starts[part] - lengths.cumsum() + lengths
                    second = members[np.arange(lengths.sum()) + offsets.repeat(lengths)]
                    yield self._only_touching(first[part].repeat(lengths), second)

    def count(self) -> int:
        """Return how many pairs touching() would compare for all boxes; this is fast."""
        every = np.arange(len(self._low))
        return sum(
            int(counts.sum())
            for start in range(0, len(every), _BOXES_AT_ONCE)
            for *_, counts in self._ranges(every[start : start + _BOXES_AT_ONCE])
        )

    def _ranges(self, boxes: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Yield for each grid its boxes, and ranges of them that may touch one of `boxes`.

        The ranges are arrays: the box, where its range starts, and how many the range has.
        """
        for level, keys, members in self._levels:
            left, top = ((self._low[boxes] >> level) - 1).clip(min=0).T
            right, bottom = (self._high[boxes] >> level).T
            heights = bottom - top + 1
            which = np.arange(len(boxes)).repeat(heights)
            row = np.arange(len(which)) + (top - heights.cumsum() + heights)[which]
            key = self._row_key(self._groups[boxes][which], row)
            starts = keys.searchsorted(key + left[which])
            counts = keys.searchsorted(key + right[which], side="right") - starts
            some = np.flatnonzero(counts)
            yield members, boxes[which[some]], starts[some], counts[some]

    def _only_touching(self, first: Array, second: Array) -> tuple[Array, Array]:
        for low, high in (self._edges[0::2], self._edges[1::2]):
            touch = low[first] < high[second]
            touch &= low[second] < high[first]
            first, second = first[touch], second[touch]
        return first, second

    @staticmethod
    def _row_key(group: Array, row: Array) -> Array:
        return (group * _CELLS + row) * _CELLS


def _slices(counts: Array) -> Iterator[slice]:
    """Yield slices of ranges with few boxes in total; a long range is on its own."""
    if not len(counts):
        return
    ends = np.flatnonzero(np.diff(counts.cumsum() // _PAIRS_AT_ONCE, append=-1)) + 1
    first = 0
    for last in ends.tolist():
        yield slice(first, last)
        first = last
