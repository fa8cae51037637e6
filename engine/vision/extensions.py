"""File extensions of pictures and videos."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

from engine.files.naming import stem_and_suffix

PICTURE_EXTENSIONS = frozenset(
    (
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".png",
        ".webp",
        ".bmp",
        ".gif",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".pbm",
        ".pnm",
        ".mpo",
    )
)
VIDEO_EXTENSIONS = frozenset(
    (
        ".mp4",
        ".m4v",
        ".mov",
        ".mkv",
        ".webm",
        ".avi",
        ".mpg",
        ".mpeg",
        ".ts",
        ".m2ts",
        ".mts",
        ".wmv",
        ".flv",
        ".3gp",
        ".ogv",
    )
)

EXTRA = "formats"
_OF_THE_EXTRA = {
    ".heic": "HEIC",
    ".heif": "HEIC",
    ".avif": "AVIF",
    ".jp2": "JPEG 2000",
    ".j2k": "JPEG 2000",
    ".jpx": "JPEG 2000",
}
_UNSUPPORTED = {**_OF_THE_EXTRA, ".jxl": "JPEG XL", ".tga": "TGA"}


@lru_cache(maxsize=1)
def has_extra() -> bool:
    """Return whether the extra for HEIC, AVIF and JPEG 2000 is installed."""
    return find_spec("pillow_heif") is not None


def unsupported_format(name: str) -> str | None:
    """Return the format of a file that is a picture by its name but cannot be read, else None."""
    if name.startswith(".") or is_picture(name):
        return None
    return _UNSUPPORTED.get(stem_and_suffix(name)[1].lower())


def needs_extra(kind: str) -> bool:
    """Return whether this format needs the extra, which is not installed."""
    return kind in _OF_THE_EXTRA.values()


def is_picture(name: str) -> bool:
    """Return whether a file is a picture by its name; hidden files (macOS's ._*.jpg) are not."""
    suffix = stem_and_suffix(name)[1].lower()
    is_known = suffix in PICTURE_EXTENSIONS or (suffix in _OF_THE_EXTRA and has_extra())
    return is_known and not name.startswith(".")
