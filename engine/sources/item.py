"""One picture on its way into a detector, and where it is from."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from engine.errors import ImageError
from engine.vision.image import Source


@dataclass(frozen=True)
class Frame:
    """Which picture of a video this is."""

    video: str  # its name as the user wrote it
    number: int  # counted from 0 in the video, skipped ones too
    seconds: float  # since the video began
    rate: Fraction  # frames a second


@dataclass(frozen=True, eq=False)
class Item:
    """`source` is what a detector takes; `name` is what messages and outputs call it."""

    name: str
    source: Source | ImageError
    frame: Frame | None = None
