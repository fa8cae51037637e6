"""Extensions of picture files."""

from __future__ import annotations

from pathlib import PurePath

PICTURE_EXTENSIONS = frozenset(
    (
        ".jpg",
        ".jpeg",
        ".jpe",
        ".png",
        ".webp",
        ".bmp",
        ".gif",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".pbm",
        ".mpo",
    )
)

_UNSUPPORTED = {
    ".heic": "HEIC",
    ".heif": "HEIC",
    ".avif": "AVIF",
    ".jp2": "JPEG 2000",
    ".j2k": "JPEG 2000",
    ".jpx": "JPEG 2000",
    ".jxl": "JPEG XL",
}


def unsupported_format(name: str) -> str | None:
    """Return the format of a file that is a picture by its name but cannot be read, else None."""
    return None if name.startswith(".") else _UNSUPPORTED.get(PurePath(name).suffix.lower())


def is_picture(name: str) -> bool:
    """Tell by its name whether a file is a picture; hidden files (macOS's ._*.jpg) are not."""
    return not name.startswith(".") and PurePath(name).suffix.lower() in PICTURE_EXTENSIONS
