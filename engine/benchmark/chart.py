"""Numbers as a picture: groups of bars, drawn with Pillow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

from engine.errors import InputError

_WIDTH, _HEIGHT = 900, 520
_LEFT, _TOP, _RIGHT, _BOTTOM = 30, 130, 30, 50
_INK, _GRID, _PAPER = (40, 40, 40), (222, 222, 222), (255, 255, 255)
_COLOURS = (
    *((59, 110, 165), (143, 184, 222), (209, 110, 48), (243, 188, 140)),
    *((84, 140, 84), (168, 208, 160), (128, 96, 160), (200, 178, 220)),
)
_LEGEND_TOP, _LEGEND_LINE = 76, 22


def png(
    title: str,
    about: str,
    values: Mapping[str, Mapping[str, float]],
    *,
    level: tuple[float, str] | None = None,
) -> bytes:
    """`values`: a number by bar and by group; `level` is a line across, and its name."""
    image = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    pen = ImageDraw.Draw(image)
    pen.text((_LEFT, 16), title, fill=_INK, font=_font(20))
    pen.text((_LEFT, 44), about, fill=_INK, font=_font(13))
    groups = list(dict.fromkeys(group for each in values.values() for group in each))
    most = max((value for each in values.values() for value in each.values()), default=1.0)
    base = _HEIGHT - _BOTTOM
    scale = (base - _TOP - 20) / most
    width = (_WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    for place, group in enumerate(groups):
        left = _LEFT + place * width
        pen.text((left + width / 2, base + 10), group, _INK, _font(14), anchor="ma")
        bar = 0.8 * width / len(values)
        for number, each in enumerate(values.values()):
            if group in each:
                x = left + 0.1 * width + number * bar
                top = base - each[group] * scale
                pen.rectangle((x, top, x + bar - 3, base), fill=_COLOURS[number % len(_COLOURS)])
                pen.text((x + bar / 2, top - 4), _text(each[group]), _INK, _font(12), anchor="ms")
    pen.line([(_LEFT, base), (_WIDTH - _RIGHT, base)], fill=_GRID, width=2)
    if level:
        y = base - level[0] * scale
        pen.line([(_LEFT, y), (_WIDTH - _RIGHT, y)], fill=_INK, width=2)
    _legend(pen, list(values), level[1] if level else None)
    content = BytesIO()
    image.save(content, "PNG", optimize=True)
    return content.getvalue()


def _text(value: float) -> str:
    if value >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _legend(pen: ImageDraw.ImageDraw, bars: Sequence[str], level: str | None) -> None:
    x, y = float(_LEFT), _LEGEND_TOP
    font = _font(14)
    for number, name in enumerate([*bars, level] if level else bars):
        width = 18 + font.getlength(name)
        if x + width > _WIDTH - _RIGHT:
            x, y = float(_LEFT), y + _LEGEND_LINE
        if number < len(bars):
            pen.rectangle((x, y - 6, x + 12, y + 6), fill=_COLOURS[number % len(_COLOURS)])
        else:
            pen.line([(x, y), (x + 12, y)], fill=_INK, width=2)
        pen.text((x + 18, y), name, fill=_INK, font=font, anchor="lm")
        x += width + 22


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    try:
        return ImageFont.load_default(size)
    except ImportError:
        raise InputError("plot: Pillow was built without FreeType, which writes text") from None
