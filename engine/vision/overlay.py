"""Drawings on a picture in addition to boxes: trails of objects, lines and zones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from PIL import Image, ImageDraw

from engine.vision.colours import Colour, colour_of
from engine.vision.draw import Rectangle, draw_text

Point = tuple[float, float]

_MARK_COLOUR: Colour = (255, 255, 255)
_SHADOW: Colour = (0, 0, 0)


@dataclass(frozen=True)
class Mark:
    """A line, or a zone if it is closed, with its counts as text."""

    points: Sequence[Point]
    is_closed: bool
    caption: str


@dataclass(frozen=True)
class Overlay:
    trails: Mapping[int, Sequence[Point]] = field(default_factory=dict)  # by identity
    marks: Sequence[Mark] = ()

    def draw_below(self, image: Image.Image) -> None:
        """Draw lines, zones and trails on an RGB image, before the boxes."""
        pen = ImageDraw.Draw(image)
        width = max(2, round(sum(image.size) / 520))
        for mark in self.marks:
            points = [*mark.points, *mark.points[: mark.is_closed]]
            pen.line(points, fill=_SHADOW, width=width + 2, joint="curve")
            pen.line(points, fill=_MARK_COLOUR, width=width, joint="curve")
        for identity, places in self.trails.items():
            if len(places) > 1:
                pen.line([*places], fill=colour_of(identity), width=width, joint="curve")

    def draw_captions(self, image: Image.Image) -> None:
        """Draw the captions of lines and zones, after the boxes."""
        taken: list[Rectangle] = []
        for mark in self.marks:
            taken.append(draw_text(image, mark.points[0], mark.caption, _MARK_COLOUR, taken))
