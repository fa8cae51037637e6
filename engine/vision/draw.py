"""Draw boxes and labels on a copy of a picture, in sizes that follow the picture's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from engine.arguments import whole
from engine.vision.colours import Colour, colour_of, text_colour_on

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"
Rectangle = tuple[float, float, float, float]
Area = tuple[int, int, int, int]  # left, top, right, bottom pixel

_MIN_TEXT_SIZE = 11
# tried in order if a label has characters that Pillow's default font lacks
_FALLBACK_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "wqy-zenhei.ttc",
    "arialuni.ttf",
    "msyh.ttc",
    "Arial Unicode.ttf",
)
_MAX_CHARACTERS = 8  # that fit into a square of a line's height, with combining marks
_MISSING = "\ufffe"  # not a character: a font draws its glyph for missing characters


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

    An empty caption draws no label. By default sizes follow the size of the picture.
    """
    image = image.convert("RGB") if image.mode != "RGB" else image.copy()
    if line_width is None:
        line_width = max(1, round(sum(image.size) / 2 / 260))
    line_width = min(whole("line_width", line_width), max(image.size))
    text_size = text_size or max(_MIN_TEXT_SIZE, round(sum(image.size) / 2 / 40))
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
    for label in reversed(labels):  # after all boxes, so that no outline crosses a label
        pen.rectangle(label.area, fill=label.colour)
        pen.text(label.start, label.text, fill=text_colour_on(label.colour), font=label.font)
    return image


@dataclass(frozen=True)
class _Label:
    text: str
    font: Font
    area: Area
    start: tuple[float, float]  # the origin of the text
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
    """Lay out a label at a corner of its box, without covering another label if possible."""
    visible = caption[: max(1, _MAX_CHARACTERS * size[0] // text_size)]
    text = "".join(each if each.isprintable() else " " for each in visible)
    font, text = _font_for(text, text_size)
    x0, y0, x1, y1 = font.getbbox(text)
    _, line_top, _, line_bottom = font.getbbox("Hg")  # gives all labels the same height
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
    free = (area for area in areas if not any(_overlap(area, other) for other in taken))
    area = next(free, areas[0])
    start = (area[0] + margin - x0, area[1] + margin - y0)
    return _Label(text, font, area, start, colour)


def _moved_inside(left: int, top: int, width: int, height: int, size: tuple[int, int]) -> Area:
    left = max(0, min(left, size[0] - width))
    top = max(0, min(top, size[1] - height))
    return left, top, left + width - 1, top + height - 1


def _overlap(a: Area, b: Area) -> bool:
    return a[0] <= b[2] and b[0] <= a[2] and a[1] <= b[3] and b[1] <= a[3]


def _font_for(text: str, size: int) -> tuple[Font, str]:
    """Return the font with the fewest missing characters, and `text` with ? in their place."""
    default = _default_font(size)
    if not isinstance(default, ImageFont.FreeTypeFont):  # Pillow was built without FreeType
        return default, text.encode("latin-1", "replace").decode("latin-1")
    font, missing = default, _missing_in(default, text)
    for fallback in _fallback_fonts(size) if missing else ():
        still_missing = _missing_in(fallback, text)
        if len(still_missing) < len(missing):
            font, missing = fallback, still_missing
    return font, "".join("?" if each in missing else each for each in text)


def _missing_in(font: ImageFont.FreeTypeFont, text: str) -> set[str]:
    characters = {each for each in text if not (each.isascii() or each.isspace())}
    return {each for each in characters if not _has(font, each)}


def _has(font: ImageFont.FreeTypeFont, character: str) -> bool:
    mask, missing = font.getmask(character), font.getmask(_MISSING)
    return mask.getbbox() is not None and (
        mask.size != missing.size or bytes(mask) != bytes(missing)
    )


@lru_cache(maxsize=16)
def _default_font(size: int) -> Font:
    try:
        return ImageFont.load_default(size)
    except ImportError:
        return ImageFont.load_default()


@lru_cache(maxsize=16)
def _fallback_fonts(size: int) -> tuple[ImageFont.FreeTypeFont, ...]:
    return tuple(_installed(_FALLBACK_FONTS, size))


def _installed(names: Iterable[str], size: int) -> Iterable[ImageFont.FreeTypeFont]:
    for name in names:
        try:
            yield ImageFont.truetype(name, size)
        except OSError:
            continue
