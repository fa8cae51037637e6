"""Placement of labels in a picture: at their boxes, without overlapping each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

_CELLS = 8  # in each direction, to measure label density
_MAX_TAKEN = 0.35  # share of a picture for labels; the lowest scores get none
_MAX_COVERED = 0.12  # share of three by three cells for labels of full size

Area = tuple[int, int, int, int]  # left, top, right, bottom pixel


class LabelSpace:
    """A picture, and the areas taken by labels."""

    def __init__(self, size: tuple[int, int], labels: int) -> None:
        self._size = size
        self._taken = np.empty((labels, 4), np.int64)
        self._count = 0
        self._pixels = 0

    def take(
        self, box: Area, width: int, height: int, *, even_if_covered: bool = False
    ) -> Area | None:
        """Reserve an area for a label of this size at a box, or return None if none is free.

        With `even_if_covered` it then returns the first choice, which covers another label.
        """
        room = _MAX_TAKEN * self._size[0] * self._size[1] - self._pixels
        if width * height > room and not even_if_covered:
            return None
        areas = [self._moved_inside(x, y, width, height) for x, y in _corners(box, width, height)]
        area = next(filter(self._is_free, areas), areas[0] if even_if_covered else None)
        if area is not None:
            self._taken[self._count] = area
            self._count += 1
            self._pixels += width * height
        return area

    def _is_free(self, area: Area) -> bool:
        taken = self._taken[: self._count]
        left, top, right, bottom = area
        overlaps = (taken[:, 0] <= right) & (left <= taken[:, 2])
        overlaps &= (taken[:, 1] <= bottom) & (top <= taken[:, 3])
        return not overlaps.any()

    def _moved_inside(self, left: int, top: int, width: int, height: int) -> Area:
        left = max(0, min(left, self._size[0] - width))
        top = max(0, min(top, self._size[1] - height))
        return left, top, left + width - 1, top + height - 1


def _corners(box: Area, width: int, height: int) -> Iterator[tuple[int, int]]:
    """Yield the possible top left corners of a label, in order of preference."""
    left, top, right, bottom = box
    at_right, inside_bottom = right - width + 1, bottom - height + 1
    yield from ((left, top - height), (left, top))
    yield from ((at_right, top - height), (at_right, top))
    yield from ((left, bottom + 1), (left, inside_bottom))
    yield from ((at_right, bottom + 1), (at_right, inside_bottom))


def scales_of(
    boxes: Sequence[Area], label_areas: Sequence[float], size: tuple[int, int]
) -> list[float]:
    """Return a factor for the letters and lines of each box, below 1 where labels are dense.

    `label_areas` are the pixels that the labels would cover at full size.
    """
    if not boxes:
        return []
    edges = np.asarray(boxes)
    columns = edges[:, 0] * _CELLS // size[0]  # labels are at the top left if there is room
    rows = edges[:, 1] * _CELLS // size[1]
    covered = np.zeros((_CELLS + 2, _CELLS + 2))
    np.add.at(covered, (rows + 1, columns + 1), label_areas)
    blocks = [covered[y : y + _CELLS, x : x + _CELLS] for y in range(3) for x in range(3)]
    around = np.sum(blocks, axis=0)[rows, columns]
    share = around * (_CELLS / 3) ** 2 / (size[0] * size[1])
    scales: list[float] = np.sqrt(_MAX_COVERED / np.maximum(share, _MAX_COVERED)).tolist()
    return scales
