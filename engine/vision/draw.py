"""Draw boxes and labels on a picture, in sizes that depend on the picture's."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from engine.arguments import whole
from engine.vision.colours import Colour, colour_of, text_colour_on
from engine.vision.label_space import Area, LabelSpace, scales_of

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"
Rectangle = tuple[float, float, float, float]

_MIN_TEXT_SIZE = 11
_MIN_CROWDED_TEXT_SIZE = 9
_TEXT_SHARE = 40  # mean side of a picture, in units of the usual text size
_LETTER_AREA = 0.75  # label area per letter, relative to the squared text size
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
_MAX_CHARACTERS = 8  # per square of a line's height, with combining marks
_OUTLINE: Colour = (255, 0, 200)  # rare in print, and unlike the classes' colours
_MISSING = "\ufffe"  # not a character: a font draws its glyph for missing characters


def annotate(
    image: Image.Image,
    boxes: Sequence[Rectangle],
    class_ids: Sequence[int],
    captions: Sequence[str],
    *,
    short_captions: Sequence[str] = (),
    line_width: int | None = None,
    text_size: int | None = None,
    outlines: Sequence[Sequence[tuple[float, float]]] = (),
    tiles: Sequence[Rectangle] = (),
    in_place: bool = False,
) -> Image.Image:
    """Return an RGB copy of `image` with boxes (left, top, right, bottom), the first on top.

    With `in_place` this is `image` itself, which must be RGB: a copy takes 4 bytes a pixel.

    An empty caption draws no label. By default, sizes depend on the size of the picture, and lines
    and letters are smaller where labels are dense. A label without room next to its box shows its
    short caption, or is omitted; the first one is always drawn. `outlines` are the corners of
    polygons, such as rotated codes. `tiles` are outlined below everything else, with a colour for
    each size.
    """
    image = image if in_place else image.convert("RGB")
    side = sum(image.size) / 2
    usual_size = text_size or max(_MIN_TEXT_SIZE, round(side / _TEXT_SHARE))
    usual_width = max(1, round(side / 260))
    if line_width is not None:
        line_width = min(whole("line_width", line_width), max(image.size))
    rows = [
        (area, colour_of(class_id), texts)
        for box, class_id, *texts in zip(
            boxes, class_ids, captions, short_captions or captions, strict=True
        )
        if (area := _clip(box, image.size))
    ]
    lengths = [min(len(texts[0]), _max_length(image.size, usual_size)) for _, _, texts in rows]
    label_areas = [_LETTER_AREA * usual_size**2 * length for length in lengths]
    scales = scales_of([area for area, _, _ in rows], label_areas, image.size)
    space = LabelSpace(image.size, len(rows))
    labels: list[_Label] = []
    for (area, colour, texts), scale in zip(rows, scales, strict=True):
        size = text_size or max(_MIN_CROWDED_TEXT_SIZE, round(usual_size * scale))
        for text in dict.fromkeys(filter(None, texts)):
            label = _label(text, area, image.size, size, space, colour, first=not labels)
            if label is not None:
                labels.append(label)
                break
    pen = ImageDraw.Draw(image)
    _draw_tiles(pen, tiles, image.size, usual_width)
    for (area, colour, _), scale in reversed([*zip(rows, scales, strict=True)]):
        width = line_width or max(1, round(usual_width * scale))
        pen.rectangle(area, outline=colour, width=width)
    for corners in outlines:
        pen.line([*corners, corners[0]], fill=_OUTLINE, width=max(2, usual_width), joint="curve")
    for label in reversed(labels):  # after all boxes, so that no outline crosses a label
        pen.rectangle(label.area, fill=label.colour)
        pen.text(label.start, label.text, fill=text_colour_on(label.colour), font=label.font)
    return image


def _draw_tiles(
    pen: ImageDraw.ImageDraw, tiles: Sequence[Rectangle], size: tuple[int, int], width: int
) -> None:
    """Outline tiles; "auto" has several sizes, and the smallest is drawn last."""
    sides = [(round(right - left), round(bottom - top)) for left, top, right, bottom in tiles]
    levels = sorted(set(sides), key=lambda each: each[0] * each[1])
    for tile, each in sorted(zip(tiles, sides, strict=True), key=lambda pair: -pair[1][0]):
        if area := _clip(tile, size):
            pen.rectangle(area, outline=colour_of(levels.index(each)), width=width)


def draw_text(
    image: Image.Image,
    at: tuple[float, float],
    text: str,
    colour: Colour,
    taken: Sequence[Rectangle] = (),
) -> Rectangle:
    """Draw text on a background of `colour` near a point; return the area that it takes.

    The text stays inside the picture, is broken into lines if it is too wide, and moves up or down
    to avoid the areas `taken`.
    """
    size = max(_MIN_TEXT_SIZE, round(sum(image.size) / 2 / _TEXT_SHARE))
    visible = text[: _max_length(image.size, size)]
    font, text = _font_for("".join(each if each.isprintable() else " " for each in visible), size)
    margin = _extent(font, text, size)[-1]
    lines = _lines(font, text, image.width - 2 * margin)
    extents = [_extent(font, each, size) for each in lines]
    width = max(each[2] for each in extents)
    line_height = max(each[3] for each in extents)
    height = line_height * len(lines)
    left = max(0, min(round(at[0]), image.width - width))
    wanted = max(0, min(round(at[1]), image.height - height))

    def is_free(top: int) -> bool:
        is_inside = 0 <= top <= image.height - height
        return is_inside and not any(
            left < area[2] and area[0] < left + width and top < area[3] and area[1] < top + height
            for area in taken
        )

    tops = [wanted, *(ceil(each[3]) for each in taken), *(int(each[1]) - height for each in taken)]
    top = next(filter(is_free, sorted(tops, key=lambda each: abs(each - wanted))), wanted)
    pen = ImageDraw.Draw(image)
    pen.rectangle((left, top, left + width - 1, top + height - 1), fill=colour)
    for number, (line, (x0, y0, *_)) in enumerate(zip(lines, extents, strict=True)):
        start = (left + margin - x0, top + number * line_height + margin - y0)
        pen.text(start, line, fill=text_colour_on(colour), font=font)
    return left, top, left + width, top + height


def text_mask(text: str, size: int) -> Image.Image:
    """Return the coverage of each pixel of a label by its text, as a grey image with margins."""
    font, text = _font_for("".join(each if each.isprintable() else " " for each in text), size)
    x0, y0, width, height, margin = _extent(font, text, size)
    mask = Image.new("L", (width, height))
    ImageDraw.Draw(mask).text((margin - x0, margin - y0), text, fill=255, font=font)
    return mask


def _lines(font: Font, text: str, width: float) -> list[str]:
    """Break a text at spaces, or inside long words, where it would be wider than `width`."""
    lines = []
    while font.getlength(text) > width and len(text) > 1:
        lengths = range(1, len(text))
        end = max(1, bisect_right(lengths, width, key=lambda count: font.getlength(text[:count])))
        end = max(text.rfind(" ", 0, end + 1), 0) or end
        lines.append(text[:end])
        text = text[end:].lstrip()
    return [*lines, text]


def _extent(font: Font, text: str, size: int) -> tuple[float, float, int, int, int]:
    """Return the corner of a text in its font, and the size and margin of its label."""
    x0, y0, x1, y1 = font.getbbox(text)
    _, line_top, _, line_bottom = font.getbbox("Hg")  # gives all labels the same height
    y0, y1 = min(y0, line_top), max(y1, line_bottom)
    margin = max(2, size // 6)
    return x0, y0, ceil(x1 - x0) + 2 * margin, ceil(y1 - y0) + 2 * margin, margin


def _max_length(size: tuple[int, int], text_size: int) -> int:
    """Return the maximum number of characters that can be visible in a label."""
    return max(1, _MAX_CHARACTERS * size[0] // text_size)


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
    space: LabelSpace,
    colour: Colour,
    *,
    first: bool,
) -> _Label | None:
    """Lay out a label at a corner of its box, unless that would cover another label."""
    visible = caption[: _max_length(size, text_size)]
    text = "".join(each if each.isprintable() else " " for each in visible)
    font, text = _font_for(text, text_size)
    x0, y0, width, height, margin = _extent(font, text, text_size)
    area = space.take(box, width, height, even_if_covered=first)
    if area is None:
        return None
    start = (area[0] + margin - x0, area[1] + margin - y0)
    return _Label(text, font, area, start, colour)


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
