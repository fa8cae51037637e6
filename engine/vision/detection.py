"""One detected object and its box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from engine.vision.code import Code, Corners


class Box(NamedTuple):
    """Edges in pixels of the picture; as in darknet they may lie outside it."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def clipped(self, width: float, height: float) -> Box:
        """Clip the box to a picture; a box outside it gets zero width or height."""
        left, right = (min(max(x, 0.0), float(width)) for x in (self.left, self.right))
        top, bottom = (min(max(y, 0.0), float(height)) for y in (self.top, self.bottom))
        return Box(left, top, right, bottom)


@dataclass(frozen=True)
class Detection:
    """One box with its class and score.

    Examples:
        >>> found = engine.load()("docs/parcel.jpg", classes=["qr"])[0]
        >>> found.label, round(found.score, 2), round(found.box.width)
        ('qr', 0.96, 63)
    """

    label: str
    class_id: int
    score: float
    box: Box
    track_id: int | None = None  # the identity assigned by a tracker
    code: Code | None = None  # the code, if codes were read and this one could be

    @property
    def text(self) -> str | None:
        """The text of a code, or None if it was not read."""
        return self.code.text if self.code else None

    @property
    def format(self) -> str | None:
        """The format of a code that was read, such as QR Code and EAN-13."""
        return self.code.format if self.code else None

    @property
    def corners(self) -> Corners | None:
        """The corners of a code that was read, in pixels, from the top left of the symbol."""
        return self.code.corners if self.code else None
