"""Protect pictures from changes while a stream reads ahead."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from engine.errors import ImageError
from engine.sources.archive import NamedBytes
from engine.vision import picture_limits
from engine.vision.image import Picture, encoded_of, is_image, path_of

_MOST_VALUES = 4  # per pixel
_OPENERS = ("tarfile", "tempfile", "zipfile")  # modules


def unchanging(
    sources: Iterable[Any],
    may_stay: Callable[[np.ndarray[Any, Any]], bool],
    read: Callable[[Any], Picture],
) -> Iterable[Any]:
    """Copy or read pictures from a mere iterable, as it may change or close them afterwards.

    Cameras reuse one buffer. The pictures of a sequence exist at the same time, so they are left as
    they are, and so are arrays that `may_stay`. `read` decodes a Pillow image.
    """
    is_sequence = hasattr(sources, "__getitem__") and hasattr(sources, "__len__")
    if is_sequence and not hasattr(sources, "__next__"):
        return sources
    return (_taken(each, may_stay, read) for each in sources)


def _taken(
    source: Any,
    may_stay: Callable[[np.ndarray[Any, Any]], bool],
    read: Callable[[Any], Picture],
) -> Any:
    try:
        if isinstance(source, np.ndarray):
            is_refused = source.size > _MOST_VALUES * picture_limits.PIXELS
            return source if is_refused or may_stay(source) else source.copy()
        if isinstance(source, (bytearray, memoryview)):
            return bytes(source)
        if type(source) is io.BytesIO and path_of(source) is None:
            return source.read() or source.getvalue()  # bytes, which processes can decode
        if _is_file_at_hand(source):
            return encoded_of(source)
        if is_image(source):
            return read(source)
        if hasattr(source, "__array__") and not isinstance(source, (str, Picture)):
            return np.array(source)
    except ImageError as error:
        return error
    except Exception:  # errors are reported when it is the picture's turn
        return source
    return source


def _is_file_at_hand(source: object) -> bool:
    """Return whether a source is a file that is quick to read, and may soon be closed.

    Others, such as a server's response, may be slow, and are read when it is their turn.
    """
    if isinstance(source, NamedBytes):  # created by this package for one picture
        return False
    if isinstance(source, io.BytesIO) or type(source).__module__ in _OPENERS:
        return True
    try:
        number = source.fileno() if isinstance(source, io.IOBase) else -1
        return number >= 0 and stat.S_ISREG(os.fstat(number).st_mode)
    except (OSError, ValueError):  # it has no descriptor, or is closed
        return False
