"""Apply and undo the eight EXIF orientations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.arrays import Array

_INVERSE = {6: 8, 8: 6}  # the others are their own inverse


_TRANSPOSED, _UPSIDE_DOWN, _MIRRORED = (5, 6, 7, 8), (3, 4, 7, 8), (2, 3, 6, 7)


def upright(pixels: Array, orientation: int) -> Array:
    """Rotate and mirror (height, width, channels) into the upright position."""
    if orientation in _TRANSPOSED:
        pixels = pixels.swapaxes(0, 1)
    if orientation in _UPSIDE_DOWN:
        pixels = pixels[::-1]
    if orientation in _MIRRORED:
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


class Layout(NamedTuple):
    """The memory layout of a picture, in bytes."""

    height: int
    width: int
    row_step: int  # to the pixel below
    column_step: int  # to the pixel on the right
    first: int = 0  # to the top left pixel

    def upright(self, orientation: int) -> Layout:
        """Return the layout of the upright picture in the same memory."""
        height, width, row_step, column_step, first = self
        if orientation in _TRANSPOSED:
            height, width, row_step, column_step = width, height, column_step, row_step
        if orientation in _UPSIDE_DOWN:
            first, row_step = first + (height - 1) * row_step, -row_step
        if orientation in _MIRRORED:
            first, column_step = first + (width - 1) * column_step, -column_step
        return Layout(height, width, row_step, column_step, first)


def as_stored(pixels: Array, orientation: int) -> Array:
    """Invert `upright`."""
    return upright(pixels, _INVERSE.get(orientation, orientation))
