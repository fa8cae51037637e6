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


def is_picture(name: str) -> bool:
    """Tell by its name whether a file is a picture; hidden files (macOS's ._*.jpg) are not."""
    return not name.startswith(".") and PurePath(name).suffix.lower() in PICTURE_EXTENSIONS
