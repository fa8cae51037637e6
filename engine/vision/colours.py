"""A fixed colour for each class, and a text colour that is legible on it."""

from __future__ import annotations

import colorsys

Colour = tuple[int, int, int]

_GOLDEN_RATIO = 0.6180339887498949  # hue step that makes neighbouring ids look different
_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)


def colour_of(class_id: int) -> Colour:
    """Return the RGB colour of a class."""
    hue = (class_id * _GOLDEN_RATIO + 0.33) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.78, 0.96)
    return round(red * 255), round(green * 255), round(blue * 255)


def text_colour_on(colour: Colour) -> Colour:
    """Return black for text on a light `colour`, otherwise white."""
    red, green, blue = colour
    return _BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else _WHITE
