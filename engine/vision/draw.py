"""Boxes and labels on a copy of a picture, legible whatever its size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from engine.arguments import whole
from engine.vision.colours import Colour, colour_of, ink_on

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"
Rectangle = tuple[float, float, float, float]
Area = tuple[int, int, int, int]  # left, top, right, bottom pixel

_SMALLEST_TEXT = 11
# Tried in order for a label whose letters Pillow's own font lacks.
_OTHER_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "wqy-zenhei.ttc",
    "arialuni.ttf",
    "msyh.ttc",
    "Arial Unicode.ttf",
)
_MOST_LETTERS = 8  # in a square of a line's height, marks above and below letters included
_MISSING = "\ufffe"  # not a character: drawn as a font draws what it lacks


def annotate(
    image: Image.Image,
    boxes: Sequence[Rectangle],
    class_ids: Sequence[int],
    captions: Sequence[str],
    *,
    line_width: int | None = None,
    text_size: int | None = None,
) -> Image.Image:
    """Return an RGB copy of `image` with boxes (left, top, right, bottom), the first on top.

    An empty caption draws no label. Sizes follow the picture unless given.
    """
    image = image.convert("RGB") if image.mode != "RGB" else image.copy()
    if line_width is None:
        line_width = max(1, round(sum(image.size) / 2 / 260))
    line_width = min(whole("line_width", line_width), max(image.size))
    text_size = text_size or max(_SMALLEST_TEXT, round(sum(image.size) / 2 / 40))
    pen = ImageDraw.Draw(image)
    labels: list[_Label] = []
    outlines = []
    for box, class_id, caption in zip(boxes, class_ids, captions, strict=True):
        clipped = _clip(box, image.size)
        if clipped is None:
            continue
        colour = colour_of(class_id)
        outlines.append((clipped, colour))
        if caption:
            taken = [label.area for label in labels]
            labels.append(_label(caption, clipped, image.size, text_size, taken, colour))
    for area, colour in reversed(outlines):
        pen.rectangle(area, outline=colour, width=line_width)
    for label in reversed(labels):  # after all boxes: no line runs through a label
        pen.rectangle(label.area, fill=label.colour)
        pen.text(label.start, label.text, fill=ink_on(label.colour), font=label.font)
    return image


@dataclass(frozen=True)
class _Label:
    text: str
    font: Font
    area: Area
    start: tuple[float, float]  # where Pillow begins to write
    colour: Colour


def _clip(box: Rectangle, size: tuple[int, int]) -> Area | None:
    width, height = size
    left, top, right, bottom = box
    if not (left < width and top < height and right > 0 and bottom > 0):
        return None
    first = min(round(max(left, 0)), width - 1), min(round(max(top, 0)), height - 1)
    last = round(min(right, width)) - 1, round(min(bottom, height)) - 1
    return *first, max(first[0], last[0]), max(first[1], last[1])


def _label(
    caption: str,
    box: Area,
    size: tuple[int, int],
    text_size: int,
    taken: Sequence[Area],
    colour: Colour,
) -> _Label:
    """Lay out a label at a corner of its box, where no earlier one is if that can be."""
    seen = caption[: max(1, _MOST_LETTERS * size[0] // text_size)]  # the rest lies outside
    text = "".join(each if each.isprintable() else " " for each in seen)
    font, text = _font_for(text, text_size)
    x0, y0, x1, y1 = font.getbbox(text)
    _, line_top, _, line_bottom = font.getbbox("Hg")  # labels are equally high
    y0, y1 = min(y0, line_top), max(y1, line_bottom)
    margin = max(2, text_size // 6)
    width, height = ceil(x1 - x0) + 2 * margin, ceil(y1 - y0) + 2 * margin
    left, top, right, bottom = box
    corners = (
        (left, top - height),
        (left, top),
        (right - width + 1, top - height),
        (left, bottom + 1),
        (left, bottom - height + 1),
    )
    areas = [_moved_inside(x, y, width, height, size) for x, y in corners]
    free = (area for area in areas if not any(_touch(area, other) for other in taken))
    area = next(free, areas[0])
    start = (area[0] + margin - x0, area[1] + margin - y0)
    return _Label(text, font, area, start, colour)


def _moved_inside(left: int, top: int, width: int, height: int, size: tuple[int, int]) -> Area:
    left = max(0, min(left, size[0] - width))
    top = max(0, min(top, size[1] - height))
    return left, top, left + width - 1, top + height - 1


def _touch(a: Area, b: Area) -> bool:
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


def _font_for(text: str, size: int) -> tuple[Font, str]:
    """Return the font that lacks the fewest letters of `text`, and `text` with ? in their place."""
    usual = _usual_font(size)
    if not isinstance(usual, ImageFont.FreeTypeFont):  # Pillow was built without FreeType
        return usual, text.encode("latin-1", "replace").decode("latin-1")
    font, lacking = usual, _lacking(usual, text)
    for other in _other_fonts(size) if lacking else ():
        still = _lacking(other, text)
        if len(still) < len(lacking):
            font, lacking = other, still
    return font, "".join("?" if each in lacking else each for each in text)


def _lacking(font: ImageFont.FreeTypeFont, text: str) -> set[str]:
    letters = {each for each in text if not (each.isascii() or each.isspace())}
    return {each for each in letters if not _has(font, each)}


def _has(font: ImageFont.FreeTypeFont, letter: str) -> bool:
    mask, missing = font.getmask(letter), font.getmask(_MISSING)
    return mask.getbbox() is not None and (
        mask.size != missing.size or bytes(mask) != bytes(missing)
    )


@lru_cache(maxsize=16)
def _usual_font(size: int) -> Font:
    try:
        return ImageFont.load_default(size)
    except ImportError:
        return ImageFont.load_default()


@lru_cache(maxsize=16)
def _other_fonts(size: int) -> tuple[ImageFont.FreeTypeFont, ...]:
    return tuple(_installed(_OTHER_FONTS, size))


def _installed(names: Iterable[str], size: int) -> Iterable[ImageFont.FreeTypeFont]:
    for name in names:
        try:
            yield ImageFont.truetype(name, size)
        except OSError:
            continue
