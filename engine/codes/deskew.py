"""Cut a code out of a picture, turned upright and enlarged.

The bars of a code, or the sides of its modules, make gradients in one or two directions. The
direction is that of the structure tensor, in which opposite gradients count as one; for codes of
squares it is computed from fourth powers, in which all four sides of a module count as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import atan2, ceil, cos, floor, pi, sin
from typing import TYPE_CHECKING

import numpy as np

from engine.arrays import Array

if TYPE_CHECKING:
    from PIL import Image

    from engine.vision.code import Point
    from engine.vision.detection import Box

_MARGIN = 0.12  # around a box, relative to its longer side: for the quiet zone and inexact boxes
_MIN_MARGIN = 6  # pixels
_MIN_SIDE = 4  # pixels of a crop; there is no smaller code
_DIRECTION_SIDE = 256  # pixels of the part of a crop in which the direction is measured
_MIN_ANGLE = 0.03  # radians; a smaller turn costs sharpness and gains nothing


@dataclass(frozen=True, eq=False)
class Crop:
    """The surroundings of a box in grey."""

    image: Image.Image
    start: tuple[int, int]  # its place in the picture
    has_squares: bool  # modules are squares, not bars

    @classmethod
    def of(cls, pixels: Array, box: Box, *, has_squares: bool) -> Crop | None:
        """Cut out a box of uint8 pixels (height, width, channels), unless it is too small."""
        from PIL import Image

        height, width = pixels.shape[:2]
        margin = max(_MIN_MARGIN, _MARGIN * max(box.width, box.height))
        left, top = max(0, floor(box.left - margin)), max(0, floor(box.top - margin))
        right = min(width, ceil(box.right + margin))
        bottom = min(height, ceil(box.bottom + margin))
        if right - left < _MIN_SIDE or bottom - top < _MIN_SIDE:
            return None
        part = np.ascontiguousarray(pixels[top:bottom, left:right])
        image = Image.fromarray(part[..., 0] if part.shape[2] == 1 else part).convert("L")
        return cls(image, (left, top), has_squares)

    @cached_property
    def angle(self) -> float:
        return direction(self.image, has_squares=self.has_squares)

    def upright(self, scale: float, *, height_share: float = 1.0) -> Upright:
        """Return the code with its gradients along the axes, scaled.

        Of its height the part `height_share` in the middle is enough for bars.
        """
        from PIL import Image

        c, s = cos(self.angle), sin(self.angle)
        width, height = self.image.size
        # A code of sides a and b that touches the edges of the crop has a |c| + b |s| = width and
        # a |s| + b |c| = height, so that neither side can be longer than these quotients.
        small = 1e-6
        across = min(width / max(abs(c), small), height / max(abs(s), small))
        down = min(width / max(abs(s), small), height / max(abs(c), small)) * height_share
        size = (ceil(scale * across), ceil(scale * down))
        a, b = c / scale, s / scale  # from pixels of the turned picture to those of the crop
        x = width / 2 - (a * size[0] - b * size[1]) / 2
        y = height / 2 - (b * size[0] + a * size[1]) / 2
        back = (a, -b, x, b, a, y)
        turned = self.image.transform(
            *(size, Image.Transform.AFFINE, back, Image.Resampling.BICUBIC), fillcolor=128
        )
        return Upright(turned, back, self.start)


@dataclass(frozen=True, eq=False)
class Upright:
    image: Image.Image
    back: tuple[float, ...]  # the affine map to the crop
    start: tuple[int, int]  # of the crop in the picture

    def in_picture(self, point: Point) -> Point:
        """Return the place of a point of this image in the picture."""
        x, y = point
        a, b, c, d, e, f = self.back
        return a * x + b * y + c + self.start[0], d * x + e * y + f + self.start[1]

    def resized(self, factor: float) -> Upright:
        """Return the code at another scale, in a fraction of the time that turning it takes."""
        from PIL import Image

        old = self.image.size
        new = [max(1, round(factor * side)) for side in old]
        a, b, c, d, e, f = self.back
        x, y = old[0] / new[0], old[1] / new[1]
        image = self.image.resize((new[0], new[1]), Image.Resampling.BICUBIC)
        return Upright(image, (a * x, b * y, c, d * x, e * y, f), self.start)

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
    # differences over two pixels, at the same places in both directions
    dx = grey[1:-1, 2:] - grey[1:-1, :-2]
    dy = grey[2:, 1:-1] - grey[:-2, 1:-1]
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


def _middle(image: Image.Image) -> Array:
    """Return the middle half of a crop as floats: its edges show what is next to the code.

    Small crops are enlarged, because differences of single pixels are no gradients.
    """
    from PIL import Image

    width, height = image.size
    box = (width / 4, height / 4, width * 3 / 4, height * 3 / 4)
    longest = max(width, height) / 2
    scale = 2.0 if longest < _DIRECTION_SIDE else _DIRECTION_SIDE / longest
    size = (max(1, round(scale * width / 2)), max(1, round(scale * height / 2)))
    method = Image.Resampling.BICUBIC if scale > 1 else Image.Resampling.BOX
    return np.asarray(image.resize(size, method, box), np.float32)
