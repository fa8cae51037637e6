"""Convert arrays and Pillow images to (height, width, channels), uint8 or float32 in 0..1.

16-bit values are reduced to their upper byte, as in darknet's decoder; pass floats to keep the full
precision. Grey is darknet's (77 r + 150 g + 29 b) / 256. An alpha channel is dropped, not blended.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from engine.arrays import Array
from engine.errors import ImageError
from engine.vision import rgb

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageCms import ImageCmsTransform

PICTURE_CHANNELS = (1, 3, 4)
_DIRECT = {"L", "RGB", "RGBA"}
_BAND_PIXELS = 1 << 18  # pixels converted at a time


def from_image(image: Image.Image, name: str) -> Array:
    """Return the pixels of a loaded Pillow image with 1, 3 or 4 channels."""
    if image.width * image.height <= _BAND_PIXELS:
        return _from_small_image(image, name)
    if image.mode == "RGB":
        return rgb.copy_pixels(image)
    if image.mode == "I":
        low, high = image.getextrema()
        _check_wide_integers(int(low), int(high), name)  # type: ignore[arg-type]
    return _in_bands(image, name)


def _in_bands(image: Image.Image, name: str) -> Array:
    """Convert band by band, because Pillow and NumPy make several copies of what they convert."""
    width, height = image.size
    columns = min(width, _BAND_PIXELS)
    rows = max(_BAND_PIXELS // columns, 1)
    out: Array | None = None
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        for left in range(0, width, columns):
            right = min(left + columns, width)
            part = _from_small_image(image.crop((left, top, right, bottom)), name)
            if out is None:
                out = np.empty((height, width, part.shape[2]), part.dtype)
            out[top:bottom, left:right] = part
    assert out is not None
    return out


def _from_small_image(image: Image.Image, name: str) -> Array:
    mode = image.mode
    if mode.startswith("I;16"):
        return _upper_byte(np.asarray(image))[..., None]
    if mode == "I":
        return _from_wide_integers(np.asarray(image), name)
    if mode == "F":
        return from_array(np.asarray(image), name)
    if mode == "1":
        image = image.convert("L")
    elif mode == "LAB":
        image = _from_lab(image)
    elif mode in ("LA", "PA", "La", "RGBa") or (mode == "P" and "transparency" in image.info):
        image = (image.convert("LA") if mode == "La" else image).convert("RGBA")
    elif mode not in _DIRECT:
        image = image.convert("RGB")
    pixels = rgb.copy_pixels(image) if image.mode == "RGB" else np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., None]


def from_array(array: Array, name: str, *, bgr: bool = False) -> Array:
    """Return the pixels of an array (height, width) or (height, width, 1 | 3 | 4)."""
    pixels = _with_channels(array, name)
    if bgr and pixels.shape[2] >= 3:
        pixels = pixels[..., [2, 1, 0, *range(3, pixels.shape[2])]]
    kind = pixels.dtype.kind
    if kind == "b":
        return pixels.astype(np.uint8) * np.uint8(255)
    if kind == "u" and pixels.dtype.itemsize == 1:
        return np.ascontiguousarray(pixels)
    if kind == "u" and pixels.dtype.itemsize == 2:
        return _upper_byte(pixels)
    if kind == "f":
        return _checked_floats(pixels, name)
    raise ImageError(
        f"{name}: type: expected uint8, uint16, bool or a float type, got {array.dtype}."
        " Convert it, for instance with array.astype(numpy.uint8)."
    )


def with_channels(pixels: Array, channels: int, name: str) -> Array:
    """Convert between grey (1), RGB (3) and RGBA (4) as darknet's decoder does."""
    if channels not in PICTURE_CHANNELS:
        raise ImageError(
            f"{name}: channels: a picture can be read as 1 (grey), 3 (RGB) or 4 (RGBA),"
            f" the network wants {channels}. Run it on arrays of its own input shape."
        )
    have = pixels.shape[2]
    if have == channels:
        return pixels
    if channels == 1:
        return _grey(pixels)
    colours = np.repeat(pixels, 3, axis=2) if have == 1 else pixels[..., :3]
    if channels == 3:
        return np.ascontiguousarray(colours)
    opaque = np.full_like(colours[..., :1], 255 if pixels.dtype == np.uint8 else 1)
    return np.concatenate([colours, opaque], axis=2)


def _with_channels(array: Array, name: str) -> Array:
    if array.ndim == 2:
        return array[..., None]
    if array.ndim == 3 and array.shape[2] in PICTURE_CHANNELS:
        return array
    hint = ""
    if array.ndim == 3 and array.shape[0] in PICTURE_CHANNELS:
        hint = " Channels come last here: array.transpose(1, 2, 0)."
    elif array.ndim == 4:
        hint = " For several pictures, pass a list of arrays."
    raise ImageError(
        f"{name}: shape: expected (height, width) or (height, width, 1 | 3 | 4),"
        f" got {array.shape}.{hint}"
    )


def _checked_floats(pixels: Array, name: str) -> Array:
    low, high = float(pixels.min(initial=np.inf)), float(pixels.max(initial=-np.inf))
    if not (low >= 0 and high <= 1):  # so that NaN fails, too
        hint = " Divide by 255, or pass uint8." if 1 < high <= 255 and low >= 0 else ""
        raise ImageError(f"{name}: values: expected floats in 0..1, got {low:g}..{high:g}.{hint}")
    return np.ascontiguousarray(pixels, dtype=np.float32)


def _from_wide_integers(values: Array, name: str) -> Array:
    """Convert mode I: 16-bit pictures that Pillow stores in 32 bits."""
    _check_wide_integers(int(values.min()), int(values.max()), name)
    return _upper_byte(values)[..., None]


def _check_wide_integers(low: int, high: int, name: str) -> None:
    if low < 0 or high > 0xFFFF:
        raise ImageError(f"{name}: values: expected 16-bit integers, got {low}..{high}")


def _from_lab(image: Image.Image) -> Image.Image:
    from PIL import ImageCms

    return ImageCms.applyTransform(image, _lab_transform()) or image


@lru_cache(1)
def _lab_transform() -> ImageCmsTransform:
    """Build the transform once: a large picture is converted in parts."""
    from PIL import ImageCms

    lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    return ImageCms.buildTransform(lab, srgb, "LAB", "RGB")


def _upper_byte(values: Array) -> Array:
    return (values >> 8).astype(np.uint8)


def _grey(pixels: Array) -> Array:
    if pixels.dtype == np.uint8:
        height, width, channels = pixels.shape
        given = pixels.reshape(-1, channels)
        out = np.empty(len(given), np.uint8)
        for start in range(0, len(given), _BAND_PIXELS):
            part = given[start : start + _BAND_PIXELS]
            red, green, blue = (part[:, i].astype(np.uint16) for i in range(3))
            out[start : start + _BAND_PIXELS] = (77 * red + 150 * green + 29 * blue) >> 8
        return out.reshape(height, width, 1)
    weights = np.array([77, 150, 29], np.float32) / np.float32(256)
    return np.asarray(pixels[..., :3] @ weights)[..., None]
