"""The text of a machine-readable code, and where the code is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Point: TypeAlias = tuple[float, float]
Corners: TypeAlias = tuple[Point, Point, Point, Point]


@dataclass(frozen=True)
class Code:
    """A code that was read.

    `corners` are in pixels of the picture: top left, top right, bottom right and bottom left of
    the upright symbol. Those of a 1-D code reach as far as its bars can be followed.
    """

    text: str
    format: str  # in zxing-cpp's words, such as QR Code and EAN-13
    corners: Corners
    content: bytes  # `text` is these bytes, decoded by the rules of the format
