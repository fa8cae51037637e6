"""The picture formats that can be read, recognised by content instead of file extension."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import lru_cache

from PIL import features
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from engine import extras
from engine.vision import extensions

Opener = type[ImageFile]

# Pillow logs what is wrong with a picture; the ImageError reports it already.
logging.getLogger("PIL").addHandler(logging.NullHandler())

READABLE = "JPEG, PNG, WebP, BMP, GIF, TIFF or PPM"

# An MPO (several JPEGs in one file) begins like a JPEG and is read as its first picture.
_OPENERS: tuple[tuple[bytes, Opener], ...] = (
    (b"\xff\xd8\xff", JpegImageFile),
    (b"\x89PNG\r\n\x1a\n", PngImageFile),
    (b"BM", BmpImageFile),
    (b"GIF87a", GifImageFile),
    (b"GIF89a", GifImageFile),
    (b"II*\0", TiffImageFile),
    (b"MM\0*", TiffImageFile),
    (b"II+\0", TiffImageFile),
    (b"MM\0+", TiffImageFile),
    *((b"P%d" % kind, PpmImageFile) for kind in range(1, 7)),
)

_GET_THE_FILE = " Fetch the file itself, not the page that shows it."
_CONVERT = " Convert it to JPEG or PNG."
_INSTALL = f" Run: {extras.command(extensions.EXTRA)}"

_HEIC, _JPEG_2000 = "a HEIC", "a JPEG 2000"
# (magic bytes, their offset, description) of what the extra reads
_OF_THE_EXTRA: tuple[tuple[bytes, int, str], ...] = (
    (b"ftypheic", 4, _HEIC),
    (b"ftypheix", 4, _HEIC),
    (b"ftypmif1", 4, _HEIC),
    (b"ftypavif", 4, "an AVIF"),
    (b"\0\0\0\x0cjP  ", 0, _JPEG_2000),
    (b"\xff\x4f\xff\x51", 0, _JPEG_2000),
)

# (magic bytes, their offset, description, hint)
_REFUSED: tuple[tuple[bytes, int, str, str], ...] = (
    (b"version https://git-lfs", 0, "a Git LFS pointer", " Run: git lfs pull"),
    (b"%PDF", 0, "a PDF", _CONVERT),
    (b"%!PS", 0, "an EPS", _CONVERT),
    (b"\xc5\xd0\xd3\xc6", 0, "an EPS", _CONVERT),
    (b"8BPS", 0, "a Photoshop file", _CONVERT),
    *((magic, offset, name, _INSTALL) for magic, offset, name in _OF_THE_EXTRA),
    (b"ftyp", 4, "an MP4 video", ""),
    (b"\x1aE\xdf\xa3", 0, "a Matroska or WebM video", ""),
    (b"AVI ", 8, "an AVI video", ""),
    (b"\0\0\0\x0cJXL ", 0, "a JPEG XL", _CONVERT),
    (b"\xff\x0a", 0, "a JPEG XL", _CONVERT),
    (b"SIMPLE  =", 0, "a FITS", _CONVERT),
    (b"\0\0\1\0", 0, "an icon", _CONVERT),
    (b"\x76\x2f\x31\x01", 0, "an OpenEXR", _CONVERT),
    (b"qoif", 0, "a QOI", _CONVERT),
    (b"\x93NUMPY", 0, "a NumPy array", " Pass numpy.load(...) of it."),
    (b"PK\3\4", 0, "a zip archive", " Unpack it first."),
    (b"\x1f\x8b", 0, "a gzip archive", " Unpack it first."),
    (b"BZh", 0, "a bzip2 archive", " Unpack it first."),
    (b"\xfd7zXZ", 0, "an xz archive", " Unpack it first."),
    (b"\x28\xb5\x2f\xfd", 0, "a Zstandard archive", " Unpack it first."),
)

_MARKUP: tuple[tuple[bytes, str, str], ...] = (
    (b"<svg", "an SVG", _CONVERT),
    (b"<!doctype html", "a web page", _GET_THE_FILE),
    (b"<html", "a web page", _GET_THE_FILE),
    (b"<?xml", "an XML file", ""),
)


def opener_of(content: bytes) -> Opener | None:
    """Return Pillow's class for the format of `content`, or None if it is not supported."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return WebPImageFile
    found = next((opener for magic, opener in _OPENERS if content.startswith(magic)), None)
    if found is None and (name := format_of_extra(content)) and extensions.has_extra():
        return _openers_of_extra().get(name)
    return found


def format_of_extra(content: bytes) -> str | None:
    """Describe the format of `content` if it is one that the extra reads."""
    found = (name for magic, at, name in _OF_THE_EXTRA if content.startswith(magic, at))
    return next(found, None)


@lru_cache(maxsize=1)
def _openers_of_extra() -> dict[str, Opener]:
    openers: dict[str, Opener] = {}
    with suppress(ImportError):
        from pillow_heif.as_plugin import HeifImageFile

        openers[_HEIC] = HeifImageFile
    if features.check("avif"):
        from PIL.AvifImagePlugin import AvifImageFile

        openers["an AVIF"] = AvifImageFile
    if features.check("jpg_2000"):
        from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile

        openers[_JPEG_2000] = Jpeg2KImageFile
    return openers


def describe(content: bytes) -> tuple[str, str]:
    """Describe the format of unsupported `content` and give a hint."""
    if not content:
        return "an empty file", ""
    for magic, offset, name, hint in _REFUSED:
        if content.startswith(magic, offset):
            return name, hint
    head = content[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith(b"<"):
        for mark, name, hint in _MARKUP:
            if mark in head:
                return name, hint
    return "something else", ""
