"""blobFromImage() and blobFromImages(): convert pictures to the array that setInput() takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from engine.arguments import is_whole
from engine.arrays import Array
from engine.compat.cv2_dnn.constants import CV_8U, CV_32F
from engine.compat.cv2_dnn.scaling import resize
from engine.errors import InputError

Scalar: TypeAlias = (
    "float | Sequence[float] | Array | None"  # cv::Scalar; one number is (x, 0, 0, 0)
)
Size: TypeAlias = "tuple[int, int] | Sequence[int] | None"

_CHANNELS = (1, 3, 4)
_KINDS = (np.uint8, np.int8, np.uint16, np.int16, np.int32, np.float32, np.float64)


def array_of(values: Any) -> Array:
    """Return an array, converting a cv2.UMat."""
    return np.asarray(values.get() if type(values).__name__ == "UMat" else values)


def blobFromImage(
    image: Array,
    scalefactor: float | Sequence[float] = 1.0,
    size: Size = None,
    mean: Scalar = None,
    swapRB: bool = False,
    crop: bool = False,
    ddepth: int = CV_32F,
) -> Array:
    """Return (1, channels, height, width): a picture, resized, minus `mean`, times the factor."""
    return blobFromImages([image], scalefactor, size, mean, swapRB, crop, ddepth)


def blobFromImages(
    images: Sequence[Array],
    scalefactor: float | Sequence[float] = 1.0,
    size: Size = None,
    mean: Scalar = None,
    swapRB: bool = False,
    crop: bool = False,
    ddepth: int = CV_32F,
) -> Array:
    """Return (pictures, channels, height, width), resized as OpenCV does.

    Unlike darknet, OpenCV resizes bytes to bytes and does not letterbox. 16-bit values are kept, up
    to 65535. `mean` is in the channel order of the result. `swapRB` has no effect on a grey
    picture.
    """
    if ddepth not in (CV_32F, CV_8U):
        raise InputError(f"ddepth: expected CV_32F or CV_8U, got {ddepth}")
    pictures = [_pixels(each) for each in images]
    if not pictures:
        raise InputError("images: expected at least one picture, got none")
    target = sides_of(size) or pictures[0].shape[1::-1]
    placed = [_placed(each, target, crop=crop) for each in pictures]
    if len({each.shape for each in placed}) > 1:
        raise InputError("images: expected pictures with the same number of channels")
    if len({each.dtype for each in placed}) > 1:
        raise InputError("images: expected pictures of the same type")
    blob = np.stack(placed).transpose(0, 3, 1, 2)
    channels = blob.shape[1]
    if swapRB and channels > 1:
        blob = blob[:, [2, 1, 0, *range(3, channels)]]
    means, factors = scalar(mean, channels), scalar(scalefactor, channels, spread=True)
    if ddepth == CV_8U:
        if means.any() or (factors != 1).any():
            raise InputError("ddepth: CV_8U allows neither mean nor scalefactor")
        if blob.dtype != np.uint8:
            blob = blob.astype(np.int32)  # C truncates fractions, then keeps the lowest eight bits
        return np.ascontiguousarray(blob.astype(np.uint8))
    made = np.ascontiguousarray(blob, np.float32)
    if means.any():
        made -= means[:, None, None]
    made *= factors[:, None, None]
    return made


def scalar(value: Any, channels: int, *, spread: bool = False) -> Array:
    """Return a cv::Scalar as one float32 per channel; `spread` repeats a single number."""
    if value is None:
        value = ()
    try:
        numbers = np.atleast_1d(np.asarray(value, np.float64)).reshape(-1)
    except (TypeError, ValueError):
        raise InputError(f"mean: expected up to four numbers, got {value!r}") from None
    if spread and numbers.size == 1:
        numbers = numbers.repeat(channels)
    if numbers.size > max(_CHANNELS):
        raise InputError(f"mean: expected up to four numbers, got {numbers.size}")
    whole = np.zeros(max(_CHANNELS), np.float32)
    whole[: numbers.size] = numbers
    return whole[:channels]


def _pixels(image: Any) -> Array:
    if image is None:
        raise InputError("image: expected an array, got None. Could imread() not read the file?")
    pixels = array_of(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in _CHANNELS or not pixels.size:
        raise InputError(
            f"image: expected (height, width) or (height, width, 1, 3 or 4), got {pixels.shape}"
        )
    if pixels.dtype in (np.int64, np.uint64):
        pixels = pixels.astype(np.int32)
    if pixels.dtype not in _KINDS:
        raise InputError(
            f"image: expected uint8, uint16, int16, float32 or float64, got {pixels.dtype}"
        )
    return pixels


def sides_of(size: Any) -> tuple[int, int] | None:
    """Return width and height, or None for OpenCV's empty sizes."""
    try:
        sides = () if size is None else tuple(size)
    except TypeError:
        sides = (size,)
    if sides in ((), (0, 0)):
        return None
    if len(sides) != 2 or not all(map(is_whole, sides)):
        raise InputError(f"size: expected width and height, such as (416, 416), got {size!r}")
    return int(sides[0]), int(sides[1])


def _placed(pixels: Array, size: tuple[int, int], *, crop: bool) -> Array:
    height, width = pixels.shape[:2]
    if not crop or size == (width, height):
        return resize(pixels, size)
    factor = float(np.float32(max(size[0] / width, size[1] / height)))  # a float in OpenCV
    inner = round(width * factor), round(height * factor)
    left, top = int(0.5 * (inner[0] - size[0])), int(0.5 * (inner[1] - size[1]))
    columns, rows = range(inner[0])[left : left + size[0]], range(inner[1])[top : top + size[1]]
    return resize(pixels, inner, factor, (columns, rows))
