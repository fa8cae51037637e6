"""The eight EXIF orientations: how a camera says which way is up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_INVERSE = {6: 8, 8: 6}  # the others undo themselves


def upright(pixels: Array, orientation: int) -> Array:
    """Turn and mirror (height, width, channels) so that the EXIF orientation is undone."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def as_stored(pixels: Array, orientation: int) -> Array:
    """The way back from `upright`."""
    return upright(pixels, _INVERSE.get(orientation, orientation))
