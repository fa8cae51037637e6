"""Encoded bytes → an open Pillow image: known formats only, bounded, one kind of error, silent."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import TYPE_CHECKING

from engine import forks
from engine.errors import ImageError
from engine.vision.chroma import is_of_half_height, load_rgb
from engine.vision.naming import shown

if TYPE_CHECKING:
    from PIL import Image


def decode(content: bytes, name: str, *, max_pixels: int) -> tuple[Image.Image, int]:
    """Return the first frame, loaded, and the EXIF orientation that it still needs undone or done.

    The number is 1 (upright) to 8; a TIFF has been turned by Pillow already.
    """
    image = opened(content, name)
    if not is_of_half_height(image):
        return load(image, name, max_pixels=max_pixels)
    check_size(*image.size, name, max_pixels=max_pixels)
    with _QUIET:
        try:
            return load_rgb(image), _orientation(image)
        except Exception as error:
            raise broken(name, error) from error


def opened(content: bytes, name: str) -> Image.Image:
    """A picture of which only the head was read: its size is known, whatever that is."""
    from engine.vision.formats import READABLE, describe, opener_of  # all of Pillow

    opener = opener_of(content)
    if opener is None:
        got, hint = describe(content)
        raise ImageError(f"{name}: picture: expected {READABLE}, got {got}.{hint}")
    with _QUIET:
        try:
            return opener(BytesIO(content), name)
        # A broken file makes Pillow raise nearly any exception there is.
        except Exception as error:
            raise broken(name, error) from error


def load(image: Image.Image, name: str, *, max_pixels: int) -> tuple[Image.Image, int]:
    """Decode an opened image after a look at its size; return it with its EXIF orientation."""
    width, height = image.size
    check_size(width, height, name, max_pixels=max_pixels)
    with _QUIET:
        try:
            before = _orientation(image) if image.format == "TIFF" else 1
            image.load()
        except Exception as error:
            raise broken(name, error) from error
        return image, before if image.format == "TIFF" else _orientation(image)


def check_size(width: int, height: int, name: str, *, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"{name}: size: expected at least 1 x 1, got {width} x {height}")
    if width * height > max_pixels:
        raise ImageError(
            f"{name}: size: expected at most {max_pixels} pixels, got {width} x {height}."
            " Scale it down."
        )


def broken(name: str, error: Exception) -> ImageError:
    reason = shown(" ".join(str(error).split())) or type(error).__name__
    return ImageError(f"{name}: picture: cannot be decoded: {reason}")


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(0x0112)
    except Exception:  # a broken EXIF block must not cost the picture
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


class _Quiet:
    """Silences Pillow's warnings while any thread is inside.

    warnings.catch_warnings saves and restores one list for the whole process, so threads that
    overlap would leave it wrong; only the first one in and the last one out touch it.
    """

    def __init__(self) -> None:
        self._lock = forks.lock(inner=True)
        self._inside = 0
        self._saved: warnings.catch_warnings[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._saved is None:
                self._saved = warnings.catch_warnings()
                self._saved.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._saved is not None:
                self._saved.__exit__(None, None, None)
                self._saved = None


_QUIET = _Quiet()
