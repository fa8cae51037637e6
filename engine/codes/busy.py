"""Find the parts of a large picture that may hold a 2-D code, where dark and light alternate often.

Most of a photograph of labels is flat, or has isolated edges. Every second pixel of every second
row is compared with its block's threshold, which is computed as in zxing-cpp: halfway between the
darkest and the lightest pixel; a block of low contrast counts as light. A part begins where a fifth
of the neighbouring samples in a window differ. It grows while more than a few of the cells along a
side have edges: many edges cross the side of a code, few cross a line or a border.

Codes with large modules are not found here, but in the picture scaled to a third of its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from engine.arrays import Array

Area: TypeAlias = tuple[int, int, int, int]  # left, top, right, bottom; the latter two exclusive

_STEP = 2  # pixels between samples
_BLOCK = 4  # samples per side of a block with a common threshold
_LEAST_CONTRAST = 24  # zxing-cpp's minimum within a block
_CELL = 8  # samples per side; a window is 2 x 2 cells
_MANY_CHANGES = 100  # out of 512 pairs of neighbours in a window
_FEW_EDGES = 0.2  # share of the cells along a side
_QUIET = 16  # pixels of margin around a part
_MOST = 0.6  # share of the picture; beyond it, reading parts costs as much as the whole
_MOST_SEEDS = 0.3  # share of the picture, as parts grow from seeds
_MOST_GROUPS = 200  # joining groups of cells takes quadratic time


def busy_parts(grey: Array) -> list[Area]:
    """Return rectangles of a picture (height, width) that enclose possible 2-D codes."""
    height, width = grey.shape
    whole = 0, 0, width, height
    if min(height, width) < 2 * _CELL * _STEP:
        return [whole]
    changes, edges = _cells(np.ascontiguousarray(grey[::_STEP, ::_STEP]))
    windows = changes[:-1, :-1] + changes[1:, :-1] + changes[:-1, 1:] + changes[1:, 1:]
    seeds = np.zeros_like(edges)
    for rows in (slice(None, -1), slice(1, None)):
        for columns in (slice(None, -1), slice(1, None)):
            seeds[rows, columns] |= windows >= _MANY_CHANGES
    if np.count_nonzero(seeds) > _MOST_SEEDS * seeds.size:
        return [whole]
    groups = list(_groups(seeds & edges))
    if len(groups) > _MOST_GROUPS:
        return [whole]
    sums = np.pad(edges, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1).tolist()
    parts = [
        _aligned(each, width, height) for each in _joined([_grown(each, sums) for each in groups])
    ]
    return parts if sum(map(_size, parts)) < _MOST * _size(whole) else [whole]


def _aligned(cells: Area, width: int, height: int) -> Area:
    """Return the pixels of cells with a margin, on the sampling grid that the whole picture has.

    zxing-cpp has blocks of 8 pixels, looks for QR codes in every third row, and for Data Matrix in
    every 16th row and column from the middle.
    """
    left, top, right, bottom = (_CELL * _STEP * each for each in cells)
    left = max(0, left - _QUIET) // 8 * 8
    top = max(0, top - _QUIET) // 24 * 24
    right += _QUIET + (width - left - right - _QUIET) % 32
    bottom += _QUIET + (height - top - bottom - _QUIET) % 32
    return left, top, min(width, right), min(height, bottom)


def _cells(samples: Array) -> tuple[Array, Array]:
    """Return for each cell how many neighbours differ, and whether it has any edges."""
    rows, columns = (each // _CELL for each in samples.shape)
    height, width = rows * _CELL, columns * _CELL
    blocks = samples[:height, :width].reshape(height // _BLOCK, _BLOCK, width)
    high, low = (
        _of_pairs(_of_pairs(function.reduce(blocks, axis=1), function), function)
        for function in (np.maximum, np.minimum)
    )
    has_edges = high - low > _LEAST_CONTRAST
    thresholds = np.where(has_edges, low + (high - low) // 2 + 1, 0).astype(np.uint8)
    dark = (blocks < thresholds.repeat(_BLOCK, axis=1)[:, None]).reshape(height, width)
    changes = np.zeros((height, width), np.uint8)
    changes[:, 1:] = dark[:, 1:] ^ dark[:, :-1]
    changes[1:] += dark[1:] ^ dark[:-1]
    in_rows = changes.reshape(rows, _CELL, width).sum(axis=1, dtype=np.uint8)
    per_cell = np.add.reduceat(in_rows, range(0, width, _CELL), axis=1, dtype=np.int32)
    per_side = _CELL // _BLOCK
    of_cells = has_edges.reshape(rows, per_side, columns, per_side)
    return per_cell, np.logical_or.reduce(of_cells, axis=(1, 3))


def _of_pairs(values: Array, function: np.ufunc) -> Array:
    pairs: Array = function(values[:, ::2], values[:, 1::2])
    return pairs


def _groups(cells: Array) -> Iterator[Area]:
    """Yield the bounding boxes of groups of touching cells; corners count as touching."""
    width = cells.shape[1] + 1  # with an empty column, so that rows do not touch
    around = [width * dy + dx for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    left_over = set(np.flatnonzero(np.pad(cells, ((0, 0), (0, 1)))).tolist())
    while left_over:
        group = [left_over.pop()]
        for cell in group:  # grows during the loop
            touched = left_over.intersection([cell + each for each in around])
            left_over -= touched
            group.extend(touched)
        across = [cell % width for cell in group]
        yield min(across), min(group) // width, max(across) + 1, max(group) // width + 1


def _grown(area: Area, sums: list[list[int]]) -> Area:
    """Move the sides of an area outwards, by cells, until few of them have edges.

    `sums` is an integral image: how many cells above and to the left of each corner have edges.
    """
    height, width = len(sums) - 1, len(sums[0]) - 1

    def is_busy(left: int, top: int, right: int, bottom: int) -> bool:
        if left < 0 or top < 0 or right > width or bottom > height:
            return False
        count = sums[bottom][right] - sums[top][right] - sums[bottom][left] + sums[top][left]
        return count >= _FEW_EDGES * (right - left) * (bottom - top)

    left, top, right, bottom = area
    while True:
        start = left, top, right, bottom
        left -= is_busy(left - 1, top, left, bottom)
        top -= is_busy(left, top - 1, right, top)
        right += is_busy(right, top, right + 1, bottom)
        bottom += is_busy(left, bottom, right, bottom + 1)
        if start == (left, top, right, bottom):
            return start


def _joined(parts: list[Area]) -> list[Area]:
    """Merge parts whose common bounding box is no larger than both together."""
    joined: list[Area] = []
    for part in parts:
        place = 0
        while place < len(joined):
            other = joined[place]
            both = (
                *(min(part[0], other[0]), min(part[1], other[1])),
                *(max(part[2], other[2]), max(part[3], other[3])),
            )
            if _size(both) <= _size(part) + _size(other):
                part, place = both, 0
                joined.remove(other)
            else:
                place += 1
        joined.append(part)
    return joined


def _size(area: Area) -> int:
    return (area[2] - area[0]) * (area[3] - area[1])
