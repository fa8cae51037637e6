"""Names of the files that outputs write for a picture."""

from __future__ import annotations

import os
from pathlib import PurePath

from engine.sources.item import Item
from engine.sources.media import is_url, url_path
from engine.vision.encode import fits

# formats that an annotated picture takes over from its source
_KEPT_FORMATS = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
_MAX_BYTES = 120  # as file systems count bytes; leaves room for a number and an extension


def stem_of(item: Item) -> str:
    """Return dog for a/dog.jpg and street_000012 for frame 12 of street.mp4."""
    if item.frame:
        return f"{stem_of_video(item.frame.video)}_{item.frame.number:06d}"
    return _stem(_path(item.name)) or "picture"


def stem_of_video(name: str) -> str:
    return _stem(_path(name)) or "video"


def name_of(item: Item, size: tuple[int, int]) -> str:
    """Return the name for a picture of this size: .png if its source's format cannot hold it."""
    suffix = ".jpg" if item.frame else PurePath(_path(item.name)).suffix.lower()
    name = stem_of(item) + (suffix if suffix in _KEPT_FORMATS else ".png")
    return name if fits(size, name) else stem_of(item) + ".png"


def folder_name_of(label: str) -> str:
    """Turn any label into a valid name of a folder."""
    name = "".join(each if each.isalnum() or each in " -_.,()'" else "_" for each in label)
    return _cut(name.strip(" .")) or "_"


def _path(name: str) -> str:
    return url_path(name) if is_url(name) else name


def _stem(path: str) -> str:
    return _cut(PurePath(path).stem)


def _cut(name: str) -> str:
    name = name[:_MAX_BYTES]
    while len(os.fsencode(name)) > _MAX_BYTES:
        name = name[:-1]
    return name
