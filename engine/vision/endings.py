"""Which files of a folder are pictures, told by their names."""

from __future__ import annotations

from pathlib import PurePath

PICTURES = frozenset(
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
    """Hidden ones are none, such as macOS's notes on each picture."""
    return not name.startswith(".") and PurePath(name).suffix.lower() in PICTURES
