"""A picture from a stranger: its bytes become the rows of a network."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

from engine.vision import image, resize
from tools.fuzz import seeds as files

_MOST_PIXELS = 1 << 22  # so that decoding one takes no second
_SIZE = (32, 24)

_KINDS = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
    "GIF": ("L", "P", "RGB"),
    "BMP": ("1", "L", "P", "RGB"),
    "TIFF": ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I;16", "I", "F"),
    "PPM": ("1", "L", "RGB"),
}


def seeds() -> Iterator[bytes]:
    noise = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    for kind, modes in _KINDS.items():
        for mode in modes:
            given = picture.convert("L").convert(mode) if mode[0] in "IF" else picture.convert(mode)
            yield _saved(given, kind)
    for kind in ("GIF", "WEBP", "PNG", "TIFF"):
        yield _saved(picture, kind, save_all=True, append_images=[picture, picture])
    for compression in ("tiff_lzw", "tiff_deflate", "packbits", "jpeg", "group4"):
        mode = "1" if compression == "group4" else "RGB"
        yield _saved(picture.convert(mode), "TIFF", compression=compression)
    yield _saved(picture, "JPEG", progressive=True)
    for number in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = number
        yield _saved(picture, "JPEG" if number % 2 else "TIFF", exif=exif)
    yield from (b"P2 2 2 255 0 1 2 3", b"P3 1 1 255 9 9 9", b"P1 2 1 0 1", b"Pf 1 1 -1 abcd")
    for path in files.files("*.jpg", "*.png"):
        if path.stat().st_size < 1 << 15:
            yield path.read_bytes()


def run(data: bytes) -> None:
    picture = image.read(data, max_pixels=_MOST_PIXELS)
    assert picture.channels == 3
    resize.stretch(picture, _SIZE)
    resize.letterbox(picture, _SIZE)
    resize.centre_crop(picture, _SIZE)


def _saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()
