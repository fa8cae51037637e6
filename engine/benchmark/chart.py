"""Speeds as a picture: bars of pictures a second, a group for each batch, drawn with Pillow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

from engine.errors import InputError
from engine.vision.colours import colour_of

_WIDTH, _HEIGHT = 900, 520
_LEFT, _TOP, _RIGHT, _BOTTOM = 30, 90, 30, 50
_INK, _GRID, _PAPER = (40, 40, 40), (222, 222, 222), (255, 255, 255)


def png(title: str, about: str, speeds: Mapping[str, Mapping[int, float]]) -> bytes:
    """`speeds`: pictures a second, by who and by batch."""
    image = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    pen = ImageDraw.Draw(image)
    pen.text((_LEFT, 16), title, fill=_INK, font=_font(20))
    pen.text((_LEFT, 44), about, fill=_INK, font=_font(13))
    batches = sorted({batch for each in speeds.values() for batch in each})
    most = max((speed for each in speeds.values() for speed in each.values()), default=1.0)
    base = _HEIGHT - _BOTTOM
    group = (_WIDTH - _LEFT - _RIGHT) / max(len(batches), 1)
    for place, batch in enumerate(batches):
        left = _LEFT + place * group
        pen.text((left + group / 2, base + 10), f"batch {batch}", _INK, _font(14), anchor="ma")
        bar = 0.8 * group / len(speeds)
        for number, each in enumerate(speeds.values()):
            if batch in each:
                x = left + 0.1 * group + number * bar
                top = base - each[batch] / most * (base - _TOP - 20)
                pen.rectangle((x, top, x + bar - 3, base), fill=colour_of(number))
                text = f"{each[batch]:.0f}" if each[batch] >= 10 else f"{each[batch]:.2g}"
                pen.text((x + bar / 2, top - 4), text, _INK, _font(12), anchor="ms")
    pen.line([(_LEFT, base), (_WIDTH - _RIGHT, base)], fill=_GRID, width=2)
    _legend(pen, list(speeds))
    content = BytesIO()
    image.save(content, "PNG", optimize=True)
    return content.getvalue()


def _legend(pen: ImageDraw.ImageDraw, names: Sequence[str]) -> None:
    x = float(_LEFT)
    font = _font(14)
    for number, name in enumerate(names):
        pen.rectangle((x, 70, x + 12, 82), fill=colour_of(number))
        pen.text((x + 18, 76), name, fill=_INK, font=font, anchor="lm")
        x += 40 + font.getlength(name)
    pen.text((x, 76), "pictures a second", fill=_INK, font=font, anchor="lm")


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    try:
        return ImageFont.load_default(size)
    except ImportError:
        raise InputError("plot: Pillow was built without FreeType, which writes text") from None
