"""Decode ordinary JPEGs with simplejpeg: Pillow's pixels in three quarters of its time.

Both use libjpeg-turbo. Pillow stores four bytes per pixel, which are then copied, while simplejpeg
writes three bytes directly to their destination. It is only used for intact files: damaged ones are
left to Pillow, whose results and errors are the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine import extras

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_EXTRA = "jpeg"

# Makes an array for pixels (height, width, channels); the decoder writes into it.
MakePixels: TypeAlias = Callable[[tuple[int, int, int]], NDArray[np.uint8]]

_CHANNELS = {"L": ("GRAY", 1), "RGB": ("RGB", 3)}
# Horizontal and vertical samples of three components; all versions agree about these.
_SAMPLINGS = [[luma, (1, 1), (1, 1)] for luma in ((1, 1), (2, 1), (2, 2))]


def new_pixels(shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    return np.empty(shape, np.uint8)


def decode_whole(
    content: bytes, opened: ImageFile, make: MakePixels = new_pixels
) -> NDArray[np.uint8] | None:
    """Return the pixels of a JPEG whose header Pillow has read, in an array from `make`, or None.

    None means that the extra is not installed, or that Pillow has to decode this file.
    """
    decode = _decoder() if opened.format == "JPEG" else None
    if decode is None or opened.mode not in _CHANNELS:
        return None
    name, channels = _CHANNELS[opened.mode]
    if channels > 1 and [each[1:3] for each in getattr(opened, "layer", ())] not in _SAMPLINGS:
        return None
    pixels = make((opened.height, opened.width, channels))
    with suppress(ValueError):  # damaged, unknown to simplejpeg, or larger
        decoded = decode(content, name, buffer=pixels, strict=True)
        if decoded.shape == pixels.shape:
            return pixels
    return None


def command_that_helps() -> str:
    """Return the command that installs the extra, or "" if it would not help."""
    return extras.command(_EXTRA) if _decoder() is None and _is_pillows_library() else ""


def _is_pillows_library() -> bool:
    from PIL import features

    return features.check_feature("libjpeg_turbo") is True


@lru_cache(maxsize=1)
def _decoder() -> Any:
    """Return simplejpeg's function, or None without it, or if Pillow uses another library.

    It is tested first: an old version has other arguments, and one built for another NumPy fails in
    various ways.
    """
    from PIL import Image

    encoded = BytesIO()
    Image.new("L", (8, 8), 200).save(encoded, "JPEG")
    try:
        from simplejpeg import decode_jpeg

        pixels = new_pixels((8, 8, 1))
        decode_jpeg(encoded.getvalue(), "GRAY", buffer=pixels, strict=True)
        works = bool((pixels == 200).all())
    except Exception:
        return None
    return decode_jpeg if works and _is_pillows_library() else None
