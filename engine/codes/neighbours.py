"""Tell whether two lines through bars are of one 1-D code, or of neighbours that say the same.

A reading of a 1-D code is a line from the first bar to the last. Between two lines of one code all
others show the same bars; between those of two codes some show the ends of both, or paper.
"""

from __future__ import annotations

from math import ceil, floor, hypot
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from engine.arrays import Array

if TYPE_CHECKING:
    from engine.vision.code import Point

Line: TypeAlias = "tuple[Point, Point]"  # from the first bar to the last

_SAME_LINE = 2  # pixels between two lines that are one
_SAME_BARS = 0.5  # the correlation of two lines that show the same bars
_LINES = 96  # for a distance as long as the lines; two of them may show a gap, one a scratch
_FEW_LINES, _MOST_LINES = 5, 256
_PIXELS = 128  # of a line
_FAR = 1 / 8  # of the length; the direction of bars is not known from nearer lines


def are_of_one_code(picture: Array, one: Line, other: Line) -> bool:
    """Tell whether lines that say the same are of one code in a grey picture."""
    distance = max(_distance(a, b) for a, b in zip(one, other, strict=True))
    length = max(_distance(*one), _distance(*other))
    if distance < _SAME_LINE or length < _SAME_LINE:
        return True
    if distance >= _FAR * length:
        one, other = _straight(one, other)
    if distance > length and not _show_same_bars(_between(picture, one, other, _FEW_LINES)):
        return False  # in a fraction of the time, as most neighbours are
    count = min(_MOST_LINES, max(_FEW_LINES, ceil(_LINES * distance / length)))
    return _show_same_bars(_between(picture, one, other, count))


def _straight(one: Line, other: Line) -> tuple[Line, Line]:
    """Turn lines around their middles to cross the bars at right angles.

    A row of pixels of turned codes may cross one, what is between them and the other.
    """
    (a, b), (c, d) = one, other
    x, y = c[0] - a[0] + d[0] - b[0], c[1] - a[1] + d[1] - b[1]  # the direction of bars
    square = x * x + y * y
    if not square:
        return one, other

    def turned(left: Point, right: Point) -> Line:
        by = ((right[0] - left[0]) * x + (right[1] - left[1]) * y) / (2 * square)
        return (left[0] + by * x, left[1] + by * y), (right[0] - by * x, right[1] - by * y)

    return turned(*one), turned(*other)


def _distance(one: Point, other: Point) -> float:
    return hypot(other[0] - one[0], other[1] - one[1])


def _between(picture: Array, one: Line, other: Line, count: int) -> Array:
    """Return lines of pixels, (count, pixels), evenly from one line to the other."""
    from PIL import Image

    x, y = zip(*one, *other, strict=True)
    height, width = picture.shape
    left, top = max(0, floor(min(x)) - 1), max(0, floor(min(y)) - 1)
    part = picture[top : min(height, ceil(max(y)) + 2), left : min(width, ceil(max(x)) + 2)]
    beyond = 0.5 / (count - 1)  # the two lines are in the middle of the first row and of the last
    edges = [
        each
        for a, b in ((one[0], other[0]), (other[0], one[0]), (other[1], one[1]), (one[1], other[1]))
        for each in (a[0] + beyond * (a[0] - b[0]) - left, a[1] + beyond * (a[1] - b[1]) - top)
    ]
    quad, method = Image.Transform.QUAD, Image.Resampling.BILINEAR
    lines = Image.fromarray(part).transform((_PIXELS, count), quad, edges, method)
    return np.asarray(lines, np.float32)


def _show_same_bars(lines: Array) -> bool:
    """Tell whether no two neighbouring lines differ from the first line and from the last one."""
    lines = lines - lines.mean(axis=1, keepdims=True)
    norms = np.sqrt(np.einsum("ij,ij->i", lines, lines))
    ends = [0, -1]
    same = (lines @ lines[ends].T > _SAME_BARS * norms[:, None] * norms[ends]).any(axis=1)
    return bool((same[1:] | same[:-1]).all())
