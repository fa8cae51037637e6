"""Grouped bar charts, drawn with Pillow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from engine.errors import InputError

_Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"

_WIDTH, _HEIGHT = 900, 520
_LEFT, _RIGHT, _BOTTOM = 30, 30, 50
_INK, _GRID, _PAPER = (40, 40, 40), (222, 222, 222), (255, 255, 255)
_COLOURS = (
    *((59, 110, 165), (143, 184, 222), (209, 110, 48), (243, 188, 140)),
    *((84, 140, 84), (168, 208, 160), (128, 96, 160), (200, 178, 220)),
)
_SUBTITLE_TOP, _SUBTITLE_LINE = 44, 18
_LEGEND_LINE = 22


def png(
    title: str,
    subtitle: str,
    values: Mapping[str, Mapping[str, float]],
    *,
    reference: tuple[float, str] | None = None,
) -> bytes:
    """Return a PNG of `values`, by bar and group; `reference` is a labelled horizontal line."""
    lines = _wrapped(subtitle, _font(13))
    legend_top = _SUBTITLE_TOP + len(lines) * _SUBTITLE_LINE + 14
    top = legend_top + 54
    image = Image.new("RGB", (_WIDTH, _HEIGHT + (len(lines) - 1) * _SUBTITLE_LINE), _PAPER)
    pen = ImageDraw.Draw(image)
    pen.text((_LEFT, 16), title, fill=_INK, font=_font(20))
    for number, line in enumerate(lines):
        pen.text((_LEFT, _SUBTITLE_TOP + number * _SUBTITLE_LINE), line, fill=_INK, font=_font(13))
    groups = list(dict.fromkeys(group for each in values.values() for group in each))
    highest = max((value for each in values.values() for value in each.values()), default=1.0)
    base = image.height - _BOTTOM
    scale = (base - top - 20) / highest
    width = (_WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    for index, group in enumerate(groups):
        left = _LEFT + index * width
        pen.text((left + width / 2, base + 10), group, _INK, _font(14), anchor="ma")
        present = [
            (number, each[group]) for number, each in enumerate(values.values()) if group in each
        ]
        bar = 0.8 * width / len(present)
        for place, (number, value) in enumerate(present):
            x = left + 0.1 * width + place * bar
            y = base - value * scale
            pen.rectangle((x, y, x + bar - 3, base), fill=_COLOURS[number % len(_COLOURS)])
            pen.text((x + bar / 2, y - 4), _text(value), _INK, _font(12), anchor="ms")
    pen.line([(_LEFT, base), (_WIDTH - _RIGHT, base)], fill=_GRID, width=2)
    if reference:
        y = base - reference[0] * scale
        pen.line([(_LEFT, y), (_WIDTH - _RIGHT, y)], fill=_INK, width=2)
    _legend(pen, legend_top, list(values), reference[1] if reference else None)
    content = BytesIO()
    image.save(content, "PNG", optimize=True)
    return content.getvalue()


def _text(value: float) -> str:
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _wrapped(text: str, font: _Font) -> list[str]:
    """Break a text between words into lines that fit between the margins."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and font.getlength(longer) > _WIDTH - _LEFT - _RIGHT:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _legend(pen: ImageDraw.ImageDraw, top: int, bars: Sequence[str], reference: str | None) -> None:
    x, y = float(_LEFT), top
    font = _font(14)
    for number, name in enumerate([*bars, reference] if reference else bars):
        width = 18 + font.getlength(name)
        if x + width > _WIDTH - _RIGHT:
            x, y = float(_LEFT), y + _LEGEND_LINE
        if number < len(bars):
            pen.rectangle((x, y - 6, x + 12, y + 6), fill=_COLOURS[number % len(_COLOURS)])
        else:
            pen.line([(x, y), (x + 12, y)], fill=_INK, width=2)
        pen.text((x + 18, y), name, fill=_INK, font=font, anchor="lm")
        x += width + 22


def _font(size: int) -> _Font:
    try:
        return ImageFont.load_default(size)
    except ImportError:
        raise InputError("plot: Pillow was built without FreeType, which draws text") from None
