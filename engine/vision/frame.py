"""The place of a picture in a video."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Frame:
    """The position of a frame in its video."""

    video: str  # the name as the user wrote it
    number: int  # counted from 0, including skipped frames
    seconds: float  # since the first frame of the video
    rate: Fraction  # frames per second
    pixel_aspect: Fraction = Fraction(1)  # displayed width / height of a pixel
