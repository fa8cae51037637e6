"""Cut a code out of a picture, turned upright and enlarged.

The bars of a code, or the sides of its modules, make gradients in one or two directions. The
direction is that of the structure tensor, in which opposite gradients count as one; for codes of
squares it is computed from fourth powers, in which all four sides of a module count as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import atan2, ceil, cos, floor, pi, sin
from typing import TYPE_CHECKING

import numpy as np

from engine.arrays import Array

if TYPE_CHECKING:
    from PIL import Image

    from engine.codes.busy import Area
    from engine.vision.code import Point
    from engine.vision.detection import Box

_MARGIN = 0.12  # around a box, relative to its longer side: for the quiet zone and inexact boxes
_MIN_MARGIN = 6  # pixels
_INEXACT = 0.12  # of the longer side of a box: how much both its sides may be off, together
_MIN_SIDE = 4  # pixels of a crop; there is no smaller code
_DIRECTION_SIDE = 160  # pixels of the part of a crop in which the direction is measured
_LEAST_MIDDLE, _MOST_MIDDLE = 0.2, 0.5  # of a crop, which are that part
_ENLARGED = 2.0  # times, at most
ALL_LINES = 2**16
# The weight of neighbouring lines in gradients. Without them the angles of sharp edges are too
# large, by 2 degrees at worst; with Scharr's weight, 0.3, those of less sharp ones are too small.
_NEIGHBOUR = 0.22
_MIN_ANGLE = 0.03  # radians; a smaller turn costs sharpness and gains nothing


@dataclass(frozen=True, eq=False)
class Crop:
    """The surroundings of a box in grey."""

    image: Image.Image
    start: tuple[int, int]  # its place in the picture
    has_squares: bool  # modules are squares, not bars
    box: Box | None  # if it encloses the code closely

    @classmethod
    def of(cls, picture: Array, box: Box, *, has_squares: bool, is_close: bool) -> Crop | None:
        """Cut a box out of a grey picture, unless it is too small."""
        from PIL import Image

        height, width = picture.shape
        margin = max(_MIN_MARGIN, _MARGIN * max(box.width, box.height))
        left, top = max(0, floor(box.left - margin)), max(0, floor(box.top - margin))
        right = min(width, ceil(box.right + margin))
        bottom = min(height, ceil(box.bottom + margin))
        if right - left < _MIN_SIDE or bottom - top < _MIN_SIDE:
            return None
        image = Image.fromarray(picture[top:bottom, left:right])
        return cls(image, (left, top), has_squares, box if is_close else None)

    @cached_property
    def angle(self) -> float:
        return direction(self.image, has_squares=self.has_squares)

    def as_it_is(self) -> View:
        return View(np.asarray(self.image), (1, 0, 0, 0, 1, 0), self.start)

    def upright(
        self,
        scale: float,
        *,
        share: float = 1.0,
        most_lines: int = ALL_LINES,
        slack: float | None = 1.0,
        is_exact: bool = True,
    ) -> View:
        """Return the code with its gradients along the axes, scaled.

        Of its height the part `share` in the middle is enough for bars, and of that some lines.
        `slack` is the room for an inexact box, relative to the usual one; None is all of the crop.
        Exact pixels are for reading, and take twice the time.
        """
        from PIL import Image

        c, s = cos(self.angle), sin(self.angle)
        width, height = self.image.size
        across, down = self._sides(abs(c), abs(s), slack)
        # pixels of the crop between two pixels and between two lines
        step, line_step = 1 / scale, max(1 / scale, down * share / most_lines)
        size = (ceil(across / step), ceil(down * share / line_step))
        a, b, d, e = c * step, -s * line_step, s * step, c * line_step
        x = width / 2 - (a * size[0] + b * size[1]) / 2
        y = height / 2 - (d * size[0] + e * size[1]) / 2
        back = (a, b, x, d, e, y)
        method = Image.Resampling.BICUBIC if is_exact else Image.Resampling.BILINEAR
        turned = self.image.transform(size, Image.Transform.AFFINE, back, method, fillcolor=128)
        return View(np.asarray(turned), back, self.start)

    def _sides(self, c: float, s: float, slack: float | None) -> tuple[float, float]:
        """Return how long a code can be along and across its gradients, by the cosine and sine.

        One of sides a and b that touches the edges of a box has a c + b s = width and
        a s + b c = height. So neither can be longer than what is divided here, and together the
        two equations tell both sides, but for boxes of codes that are turned by about 45 degrees.
        """
        small = 1e-6
        width, height = self.image.size
        across = min(width / max(c, small), height / max(s, small))
        down = min(width / max(s, small), height / max(c, small))
        skew = abs(c - s)
        box = self.box
        if box is None or slack is None or skew < small:
            return across, down
        error = slack * max(2 * _MIN_MARGIN, _INEXACT * max(box.width, box.height)) / skew
        area = (c - s) * (c + s)
        return (
            min(across, max(0.0, (box.width * c - box.height * s) / area) + error),
            min(down, max(0.0, (box.height * c - box.width * s) / area) + error),
        )


@dataclass(frozen=True, eq=False)
class View:
    """A part of a picture, turned and scaled."""

    grey: Array
    back: tuple[float, ...]  # the affine map to the part as it is in the picture
    start: tuple[int, int]  # of the part

    @classmethod
    def scaled(cls, picture: Array, scale: int, area: Area | None = None) -> View:
        """Return a picture that was scaled down before, or an area of it."""
        left, top, right, bottom = area or (0, 0, picture.shape[1], picture.shape[0])
        grey = np.ascontiguousarray(picture[top:bottom, left:right])
        return cls(grey, (scale, 0, 0, 0, scale, 0), (scale * left, scale * top))

    def lines(self, *, every: int) -> View:
        """Return the view with only one line of `every` lines."""
        a, b, c, d, e, f = self.back
        lines = np.ascontiguousarray(self.grey[::every])
        return View(lines, (a, every * b, c, d, every * e, f), self.start)

    def turned(self, *, every: int = 1) -> View:
        """Return the view turned by a quarter, with only one of `every` lines of the result."""
        from PIL import Image

        a, b, c, d, e, f = self.back
        columns = self.grey[:, ::every]
        last = every * (columns.shape[1] - 1)
        turned = np.asarray(Image.fromarray(columns).transpose(Image.Transpose.ROTATE_90))
        back = (b, -every * a, a * last + c, e, -every * d, d * last + f)
        return View(turned, back, self.start)

    def in_picture(self, point: Point) -> Point:
        """Return the place of a point of this image in the picture."""
        x, y = point
        a, b, c, d, e, f = self.back
        return a * x + b * y + c + self.start[0], d * x + e * y + f + self.start[1]

    def around(self, points: Sequence[Point]) -> View:
        """Return the part that encloses some points, with a margin."""
        x, y = zip(*points, strict=True)
        margin = max(_MIN_MARGIN, _MARGIN * max(max(x) - min(x), max(y) - min(y)))
        left, top = max(0, floor(min(x) - margin)), max(0, floor(min(y) - margin))
        part = self.grey[top : ceil(max(y) + margin), left : ceil(max(x) + margin)]
        a, b, c, d, e, f = self.back
        back = (a, b, a * left + b * top + c, d, e, d * left + e * top + f)
        return View(part, back, self.start)

    def resized(self, factor: float) -> View:
        """Return the code at another scale, in a fraction of the time that turning it takes."""
        from PIL import Image

        image = Image.fromarray(self.grey)
        width, height = (max(1, round(factor * side)) for side in image.size)
        a, b, c, d, e, f = self.back
        x, y = image.width / width, image.height / height
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
        return View(np.asarray(resized), (a * x, b * y, c, d * x, e * y, f), self.start)

    def from_picture(self, point: Point) -> Point:
        """Return the place of a point of the picture in this image."""
        a, b, c, d, e, f = self.back
        x, y = point[0] - self.start[0] - c, point[1] - self.start[1] - f
        area = a * e - b * d
        return (e * x - b * y) / area, (a * y - d * x) / area


def direction(image: Image.Image, *, has_squares: bool) -> float:
    """Return the dominant direction of gradients in radians, 0 if they are almost upright.

    For bars it is the direction across them, and lies within a quarter turn to both sides; for
    squares it is one of two, and lies within an eighth.
    """
    grey = _middle(image)
    if min(grey.shape) < _MIN_SIDE:
        return 0.0
    dx, dy = grey[:, 2:] - grey[:, :-2], grey[2:] - grey[:-2]
    dx = _smooth(dx[:-2], dx[1:-1], dx[2:])
    dy = _smooth(dy[:, :-2], dy[:, 1:-1], dy[:, 2:])
    across, down, mixed = dx * dx, dy * dy, 2 * dx * dy
    difference, strength = across - down, np.maximum(across + down, 1)
    rows, columns = (
        np.exp(-2 * np.linspace(-1, 1, count, dtype=np.float32) ** 2) for count in dx.shape
    )

    def total(values: Array) -> float:
        return float(rows @ values @ columns)

    # The square of dx + i dy has twice its direction, and the square of that four times.
    either = atan2(
        total(2 * difference * mixed / strength), total((difference**2 - mixed**2) / strength)
    )
    angle = either / 4
    if not has_squares:  # the edges of rows and of a label are parallel or perpendicular to bars
        rough = atan2(total(mixed), total(difference)) / 2
        angle += round((rough - angle) / (pi / 2)) * pi / 2
    return angle if abs(angle) > _MIN_ANGLE else 0.0


def _smooth(before: Array, here: Array, after: Array) -> Array:
    mean: Array = before + after
    mean *= _NEIGHBOUR
    mean += here
    mean /= 1 + 2 * _NEIGHBOUR
    return mean


def _middle(image: Image.Image) -> Array:
    """Return the middle of a crop as floats: its edges show what is next to the code.

    It is half of a small crop and a fifth of a large one. Small ones are enlarged, because
    differences of single pixels are no gradients.
    """
    from PIL import Image

    longest = max(image.size)
    share = min(_MOST_MIDDLE, max(_LEAST_MIDDLE, _DIRECTION_SIDE / (_ENLARGED * longest)))
    start, end = (1 - share) / 2, (1 + share) / 2
    width, height = image.size
    box = (start * width, start * height, end * width, end * height)
    scale = min(_ENLARGED, _DIRECTION_SIDE / (share * longest))
    size = (max(1, round(scale * share * width)), max(1, round(scale * share * height)))
    method = Image.Resampling.BICUBIC if scale > 1 else Image.Resampling.BOX
    return np.asarray(image.resize(size, method, box), np.float32)
