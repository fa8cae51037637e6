"""An untrusted picture: decoded and scaled."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from random import Random

import numpy as np
from PIL import Image

from engine.vision import image, resize
from tools.fuzz import seeds as files

_MAX_PIXELS = 1 << 22  # so that decoding stays within the time limit
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
    picture = image.read(data, max_pixels=_MAX_PIXELS)
    assert picture.channels == 3
    resize.stretch(picture, _SIZE)
    resize.letterbox(picture, _SIZE)
    resize.centre_crop(picture, _SIZE)


_NUMBERS = (0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 1000, 32767, 65535, 65536, 2**31 - 1, 2**32 - 1)
_MAGIC = 4  # bytes that are not mutated, since a picture without them is not decoded


def mutate(data: bytes, random: Random) -> bytes:
    """Change numbers, insert parts of other pictures, and usually repair PNG checksums."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        place = random.randrange(_MAGIC, max(len(changed), _MAGIC + 1))
        kind = random.randrange(6)
        if kind == 0:
            changed[place : place + 1] = bytes([random.randrange(256)])
        elif kind == 1:
            form = random.choice((">H", "<H", ">I", "<I"))
            number = random.choice(_NUMBERS) % (1 << 8 * struct.calcsize(form))
            changed[place : place + struct.calcsize(form)] = struct.pack(form, number)
        elif kind == 2:
            other = random.choice(_SEEDS)
            start = random.randrange(len(other))
            changed[place:place] = other[start : start + random.choice((2, 8, 64, 1000))]
        elif kind == 3:
            del changed[place : place + random.choice((1, 4, 12, 100))]
        elif kind == 4:
            changed[place:place] = changed[place : place + random.choice((4, 12, 50))]
        else:
            before = changed[place % len(changed)] if changed else 0
            changed[place : place + 1] = bytes([before ^ (1 << place % 8)])
    return _with_checksums(bytes(changed)) if random.random() < 0.9 else bytes(changed)


def _with_checksums(data: bytes) -> bytes:
    """Repair the checksums of PNG chunks, which are only read with correct ones."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return data
    whole, place = bytearray(data), 8
    while place + 12 <= len(whole):
        (size,) = struct.unpack_from(">I", whole, place)
        end = place + 8 + size
        if end + 4 > len(whole):
            break
        struct.pack_into(">I", whole, end, zlib.crc32(whole[place + 4 : end]))
        place = end + 4
    return bytes(whole)


def _saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


_SEEDS = tuple(seeds())
