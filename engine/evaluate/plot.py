"""A plot of lines over the unit square, drawn with Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from engine.arrays import Array
from engine.errors import InputError
from engine.vision.colours import Colour

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"

TEXT, GRID, BACKGROUND = (40, 40, 40), (222, 222, 222), (255, 255, 255)
WIDTH, HEIGHT = 900, 640
LEFT, TOP, RIGHT, BOTTOM = 70, 50, 270, 60  # margins; the right one holds the legend
SUPERSAMPLING = 3  # draw at this multiple of the size, then downscale
_TICKS = 5
_LEGEND_LINE = 24  # pixels
_MAX_LABEL = 20
_DASHES = 40


@dataclass(frozen=True)
class Line:
    """Points from (0, 0) to (1, 1); a line without a label is not in the legend."""

    x: Array
    y: Array
    colour: Colour
    label: str = ""
    width: int = 2


@dataclass(frozen=True)
class Plot:
    """Lines, the first on top, and the titles of the axes."""

    x_title: str
    y_title: str
    lines: Sequence[Line]
    notes: Sequence[str] = field(default=())  # below the legend
    mark: float | None = None  # where to draw a dashed vertical line

    def draw(self) -> Image.Image:
        image = Image.new("RGB", (WIDTH * SUPERSAMPLING, HEIGHT * SUPERSAMPLING), BACKGROUND)
        pen = ImageDraw.Draw(image)
        self._axes(pen)
        if self.mark is not None:
            for dash in range(_DASHES):
                ends = [at(self.mark, (dash + part) / _DASHES) for part in (0.2, 0.8)]
                pen.line(ends, fill=TEXT, width=SUPERSAMPLING)
        for line in reversed(self.lines):
            points = [at(x, y) for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)]
            pen.line(points, fill=line.colour, width=line.width * SUPERSAMPLING, joint="curve")
        image = image.reduce(SUPERSAMPLING)
        self._legend(ImageDraw.Draw(image))
        return image

    def _axes(self, pen: ImageDraw.ImageDraw) -> None:
        text = font(15 * SUPERSAMPLING)
        for tick in range(_TICKS + 1):
            part = tick / _TICKS
            pen.line([at(part, 0), at(part, 1)], fill=GRID, width=SUPERSAMPLING)
            pen.line([at(0, part), at(1, part)], fill=GRID, width=SUPERSAMPLING)
            x, y = at(part, 0)
            pen.text((x, y + 8 * SUPERSAMPLING), f"{part:.1f}", fill=TEXT, font=text, anchor="ma")
            x, y = at(0, part)
            pen.text((x - 8 * SUPERSAMPLING, y), f"{part:.1f}", fill=TEXT, font=text, anchor="rm")
        pen.line([at(0, 1), at(0, 0), at(1, 0)], fill=TEXT, width=2 * SUPERSAMPLING)
        x, y = at(0.5, 0)
        pen.text((x, y + 32 * SUPERSAMPLING), self.x_title, fill=TEXT, font=text, anchor="ma")
        x, y = at(0, 1)
        pen.text((x, y - 32 * SUPERSAMPLING), self.y_title, fill=TEXT, font=text, anchor="ls")

    def _legend(self, pen: ImageDraw.ImageDraw) -> None:
        text, left, y = font(13), WIDTH - RIGHT + 20, TOP + _LEGEND_LINE / 2
        for line in self.lines:
            if line.label:
                pen.line([(left, y), (left + 22, y)], fill=line.colour, width=2 * line.width)
                pen.text((left + 30, y), line.label, fill=TEXT, font=text, anchor="lm")
                y += _LEGEND_LINE
        for note in self.notes:
            y += _LEGEND_LINE / 2
            pen.text((left, y), note, fill=TEXT, font=text, anchor="lm")
            y += _LEGEND_LINE / 2


def at(x: float, y: float) -> tuple[float, float]:
    """Convert a point of the unit square to the supersampled picture."""
    return (
        (LEFT + x * (WIDTH - LEFT - RIGHT)) * SUPERSAMPLING,
        (HEIGHT - BOTTOM - y * (HEIGHT - TOP - BOTTOM)) * SUPERSAMPLING,
    )


def short(label: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in label)
    return printable if len(printable) <= _MAX_LABEL else f"{printable[: _MAX_LABEL - 1]}…"


def font(size: int) -> Font:
    try:
        return ImageFont.load_default(size)
    except ImportError:
        raise InputError("curves: Pillow was built without FreeType, which draws text") from None
