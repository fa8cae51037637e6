"""Apply and undo the eight EXIF orientations."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array

_INVERSE = {6: 8, 8: 6}  # the others are their own inverse


def upright(pixels: Array, orientation: int) -> Array:
    """Rotate and mirror (height, width, channels) into the upright position."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def as_stored(pixels: Array, orientation: int) -> Array:
    """Invert `upright`."""
    return upright(pixels, _INVERSE.get(orientation, orientation))
