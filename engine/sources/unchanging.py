"""Pictures that stay as they are while a stream reads ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from engine.vision.image import Picture, is_image


def unchanging(
    sources: Iterable[Any], may_stay: Callable[[np.ndarray[Any, Any]], bool]
) -> Iterable[Any]:
    """Copy the pictures of what can only be iterated, as it may write all into the same memory.

    Cameras fill one buffer again and again. The pictures of a sequence exist at the same time, so
    they are taken as they are, and so are arrays that `may_stay`.
    """
    if hasattr(sources, "__getitem__"):
        return sources
    return (_copy(each, may_stay) for each in sources)


def _copy(source: Any, may_stay: Callable[[np.ndarray[Any, Any]], bool]) -> Any:
    if isinstance(source, np.ndarray):
        return source if may_stay(source) else source.copy()
    try:
        if is_image(source):
            return _copy_of_image(source)
        if hasattr(source, "__array__") and not isinstance(source, (str, Picture)):
            return np.array(source)
    except Exception:  # what is wrong with a picture is said when it is its turn
        return source
    return source


def _copy_of_image(image: Any) -> Any:
    """Copy a Pillow image that may change: one that has its pixels, or may get another frame."""
    may_seek = getattr(image, "is_animated", False)
    if getattr(image, "tile", None) and not may_seek:
        return image  # a file that is not decoded yet: a worker does that
    copy = image.copy()
    copy.filename = getattr(image, "filename", "")
    if exif := image.getexif():  # its orientation; of TIFF it is not in `info`
        copy.info["exif"] = exif.tobytes()
    return copy
