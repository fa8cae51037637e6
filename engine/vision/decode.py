"""Decode a picture file with Pillow: known formats, bounded size, ImageError on failure."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from engine.arrays import Array
from engine.concurrency import fork_safety
from engine.errors import ImageError
from engine.files.naming import line_of
from engine.vision.chroma import has_440_chroma, load_440
from engine.vision.decoding_cost import affordable
from engine.vision.turbo_jpeg import MakePixels, decode_whole, new_pixels

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageFile import ImageFile

# Called with an opened picture before its pixels are decoded; may raise an error.
Admit: TypeAlias = "Callable[[ImageFile], None]"

_JPEG = b"\xff\xd8\xff"
# libjpeg fills the rest of a picture with grey at an end marker. Zeros complete a symbol or a
# segment inside which some files break off.
_ENDS = (b"\xff\xd9", bytes(64) + b"\xff\xd9")
LENIENT_HINT = ". To read a truncated JPEG: detect --lenient, load(lenient=True)"
_RAISE_LIMIT = ", or raise the limit: detect --max-pixels, load(max_pixels=...)"

_log = logging.getLogger("engine")


class Decoded(NamedTuple):
    """A decoded picture: either Pillow's image is loaded, or its pixels are in an array."""

    image: Image.Image
    orientation: int  # EXIF orientation from 1 (upright) to 8
    pixels: Array | None = None


def decode(
    content: bytes,
    name: str,
    *,
    max_pixels: int,
    lenient: bool = False,
    hint: str = "",
    admit: Admit | None = None,
    make: MakePixels = new_pixels,
) -> Decoded:
    """Decode the first frame.

    Pillow has already applied the orientation of a TIFF, but not of other formats. With `lenient`,
    a JPEG may be truncated; `hint` says how to request that. Pixels that are not in a Pillow image
    are in an array from `make`.
    """
    is_jpeg = content.startswith(_JPEG)
    hint = hint if is_jpeg and not lenient else ""
    try:
        return _decode(content, name, make, max_pixels=max_pixels, hint=hint, admit=admit)
    except ImageError:
        if not (lenient and is_jpeg):
            raise
        completed = _decode_completed(content, name, max_pixels=max_pixels, admit=admit)
        if completed is None:
            raise
        _log.warning("%s: is truncated: the missing part is grey", name)
        return completed


def _decode_completed(
    content: bytes, name: str, *, max_pixels: int, admit: Admit | None
) -> Decoded | None:
    for end in _ENDS:
        with suppress(ImageError):
            return _decode(content + end, name, new_pixels, max_pixels=max_pixels, admit=admit)
    return None


def _decode(
    content: bytes,
    name: str,
    make: MakePixels,
    *,
    max_pixels: int,
    admit: Admit | None,
    hint: str = "",
) -> Decoded:
    image = open_image(content, name)
    check_size(*image.size, name, max_pixels=max_pixels)
    if admit is not None:  # untrusted: only Pillow, whose memory use is known
        admit(image)
    elif (pixels := decode_whole(content, image, make)) is not None:
        return Decoded(image, _orientation(image), pixels)
    if not has_440_chroma(image):
        return Decoded(*load(image, name, max_pixels=max_pixels, hint=hint))
    with _QUIET:
        try:
            return Decoded(load_440(image), _orientation(image))
        except Exception as error:
            raise decode_error(name, error, hint) from error


def open_image(content: bytes, name: str) -> ImageFile:
    """Read the header of a picture; its size is known but not checked."""
    from engine.vision.formats import READABLE, describe, opener_of  # imports Pillow's plugins

    opener = opener_of(content)
    if opener is None:
        got, hint = describe(content)
        raise ImageError(f"{name}: picture: expected {READABLE}, got {got}.{hint}")
    content = affordable(content, name)
    with _QUIET:
        try:
            return opener(BytesIO(content), name)
        # For a damaged file, Pillow may raise almost any type of exception.
        except Exception as error:
            raise decode_error(name, error) from error


def load(
    image: Image.Image, name: str, *, max_pixels: int, hint: str = ""
) -> tuple[Image.Image, int]:
    """Check the size of an opened image, decode it and return it with its EXIF orientation."""
    width, height = image.size
    check_size(width, height, name, max_pixels=max_pixels)
    with _QUIET:
        try:
            # loading a TIFF applies its orientation and removes the tag
            orientation = _orientation(image) if image.format == "TIFF" else None
            image.load()
        except Exception as error:
            raise decode_error(name, error, hint) from error
        return image, orientation or _orientation(image)


def check_size(
    width: int, height: int, name: str, *, max_pixels: int, hint: str = _RAISE_LIMIT
) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"{name}: size: expected at least 1 x 1, got {width} x {height}")
    if width * height > max_pixels:
        raise ImageError(
            f"{name}: size: expected at most {max_pixels} pixels, got {width} x {height}."
            f" Scale it down{hint}."
        )


def decode_error(name: str, error: Exception, hint: str = "") -> ImageError:
    problem = f"it is incomplete, damaged or of a rare kind ({line_of(error)})"
    return ImageError(f"{name}: picture: cannot be decoded: {problem}{hint}")


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(0x0112)
    except Exception:  # a damaged EXIF block does not make the picture unreadable
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


class _Quiet:
    """Suppress Pillow's warnings while any thread is inside.

    warnings.catch_warnings saves and restores a process-wide list, which overlapping threads would
    corrupt. So only the first thread to enter and the last to leave change it. Threads are listed
    rather than counted, so that an interrupt at any line does no lasting harm.
    """

    def __init__(self) -> None:
        self._lock = fork_safety.lock(inner=True)
        self._inside: set[int] = set()  # numbers of threads
        self._saved: warnings.catch_warnings[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._saved is None:
                saved = warnings.catch_warnings()
                saved.__enter__()
                self._saved = saved
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self._inside.add(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside.discard(threading.get_ident())
            if not self._inside and self._saved is not None:
                saved, self._saved = self._saved, None
                saved.__exit__(None, None, None)


_QUIET = _Quiet()
