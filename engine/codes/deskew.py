"""Cut a code out of a picture, turned upright and enlarged.

The bars of a code, or the sides of its modules, produce gradients in one or two directions. The
direction comes from the structure tensor, where opposite gradients count as one; for codes of
squares it uses fourth powers, where all four sides of a module count as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, ceil, cos, floor, pi, sin
from typing import TYPE_CHECKING

import numpy as np

from engine.arrays import Array
from engine.concurrency.cached_property import cached_property

if TYPE_CHECKING:
    from PIL import Image

    from engine.codes.busy import Area
    from engine.vision.code import Point
    from engine.vision.detection import Box

_MARGIN = 0.12  # around a box, relative to its longer side: for quiet zones and inexact boxes
_MIN_MARGIN = 6  # pixels
_INEXACT = 0.12  # total error of both sides of a box, relative to the longer one
_MIN_SIDE = 4  # pixels of a crop; no code is smaller
_DIRECTION_SIDE = 160  # pixels; the direction is measured in a part of this size
_LEAST_MIDDLE, _MOST_MIDDLE = 0.2, 0.5  # that part, relative to the crop
_ENLARGED = 2.0  # maximum enlargement
ALL_LINES = 2**16
# The weight of neighbouring lines in gradients. Without them the angles of sharp edges come out up
# to 2 degrees too large; with Scharr's weight, 0.3, those of softer edges come out too small.
_NEIGHBOUR = 0.22
_MIN_ANGLE = 0.03  # radians; a smaller rotation costs sharpness and gains nothing


@dataclass(frozen=True, eq=False)
class Crop:
    """A box with its surroundings, in grey."""

    image: Image.Image
    start: tuple[int, int]  # its place in the picture
    has_squares: bool  # modules are squares, not bars
    box: Box | None  # None unless it encloses the code closely

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
        """Return the code rotated so that its gradients lie along the axes, and scaled.

        For bars it is enough to keep the middle `share` of the height, and at most `most_lines`
        lines of that. `slack` is the room for an inexact box, relative to the usual one; None keeps
        the whole crop. Exact pixels, which reading needs, take twice the time.
        """
        from PIL import Image

        c, s = cos(self.angle), sin(self.angle)
        width, height = self.image.size
        across, down = self._sides(abs(c), abs(s), slack)
        # distances in the crop between two pixels and between two lines of the view
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
        """Return the maximum size of a code along and across its gradients.

        `c` and `s` are the cosine and sine of its angle. A code with sides a and b that touches the
        edges of its box has a c + b s = width and a s + b c = height. So neither side can exceed
        the quotients below, and the two equations determine both sides, except for codes rotated by
        about 45 degrees.
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
    """A part of a picture, rotated and scaled."""

    grey: Array
    back: tuple[float, ...]  # the affine map back to the unrotated part
    start: tuple[int, int]  # the part's position in the picture

    @classmethod
    def scaled(cls, picture: Array, scale: int, area: Area | None = None) -> View:
        """Return the view of an already downscaled picture, or of an area of it."""
        left, top, right, bottom = area or (0, 0, picture.shape[1], picture.shape[0])
        grey = np.ascontiguousarray(picture[top:bottom, left:right])
        return cls(grey, (scale, 0, 0, 0, scale, 0), (scale * left, scale * top))

    def lines(self, *, every: int) -> View:
        """Return the view with only every `every`-th line."""
        a, b, c, d, e, f = self.back
        lines = np.ascontiguousarray(self.grey[::every])
        return View(lines, (a, every * b, c, d, every * e, f), self.start)

    def turned(self, *, every: int = 1) -> View:
        """Return the view rotated by 90 degrees, with only every `every`-th line of the result."""
        from PIL import Image

        a, b, c, d, e, f = self.back
        columns = self.grey[:, ::every]
        last = every * (columns.shape[1] - 1)
        turned = np.asarray(Image.fromarray(columns).transpose(Image.Transpose.ROTATE_90))
        back = (b, -every * a, a * last + c, e, -every * d, d * last + f)
        return View(turned, back, self.start)

    def in_picture(self, point: Point) -> Point:
        """Convert a point from this image to the picture."""
        x, y = point
        a, b, c, d, e, f = self.back
        return a * x + b * y + c + self.start[0], d * x + e * y + f + self.start[1]

    def around(self, points: Sequence[Point]) -> View:
        """Return the part that encloses the points, with a margin."""
        x, y = zip(*points, strict=True)
        margin = max(_MIN_MARGIN, _MARGIN * max(max(x) - min(x), max(y) - min(y)))
        left, top = max(0, floor(min(x) - margin)), max(0, floor(min(y) - margin))
        part = self.grey[top : ceil(max(y) + margin), left : ceil(max(x) + margin)]
        a, b, c, d, e, f = self.back
        back = (a, b, a * left + b * top + c, d, e, d * left + e * top + f)
        return View(part, back, self.start)

    def resized(self, factor: float) -> View:
        """Return the code at another scale, which is much faster than rotating it again."""
        from PIL import Image

        image = Image.fromarray(self.grey)
        width, height = (max(1, round(factor * side)) for side in image.size)
        a, b, c, d, e, f = self.back
        x, y = image.width / width, image.height / height
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
        return View(np.asarray(resized), (a * x, b * y, c, d * x, e * y, f), self.start)

    def from_picture(self, point: Point) -> Point:
        """Convert a point from the picture to this image."""
        a, b, c, d, e, f = self.back
        x, y = point[0] - self.start[0] - c, point[1] - self.start[1] - f
        area = a * e - b * d
        return (e * x - b * y) / area, (a * y - d * x) / area


def direction(image: Image.Image, *, has_squares: bool) -> float:
    """Return the dominant direction of gradients in radians, or 0 if it is almost along the axes.

    For bars this is the direction across them, within 90 degrees either way; for squares it is one
    of two directions, within 45 degrees either way.
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

    # The square of dx + i dy has twice its angle, and the fourth power four times.
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
    """Return the middle of a crop as floats: its edges show what surrounds the code.

    The middle is half of a small crop and a fifth of a large one. Small ones are enlarged, because
    differences of single pixels are not usable as gradients.
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
