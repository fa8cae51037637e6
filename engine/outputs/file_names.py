"""Names of the files that outputs write for a picture."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from engine.files.naming import crop_stem, shortened, stem_and_suffix, without_crop_number
from engine.sources.media import is_url, url_path

if TYPE_CHECKING:
    from engine.sources.item import Item

# formats that an annotated picture inherits from its source
_KEPT_FORMATS = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
_OTHER_FORMAT = ".png"
_FRAME = re.compile(r"_[0-9]{6,}$")


def stem_of(source: str, default: str) -> str:
    """Return dog for a/dog.jpg, and `default` for a source whose stem consists of dots.

    "...tar" would give "..", which is another folder.
    """
    stem = shortened(stem_and_suffix(_path(source))[0])
    return stem if stem.strip(".") else default


def output_of(item: Item) -> str:
    """Return day1/dog for a picture and day1/street_000012 for frame 12 of a video."""
    return f"{item.output}_{item.frame.number:06d}" if item.frame else item.output


def video_of(name: str) -> str | None:
    """Return day1/street for day1/street_000012, which may be a frame, and None for day1/dog."""
    found = _FRAME.search(name)
    return name[: found.start()] if found else None


def suffix_of(source: str) -> str:
    """Return the extension of the annotated copy of a picture."""
    suffix = stem_and_suffix(_path(source))[1].lower()
    return suffix if suffix in _KEPT_FORMATS else _OTHER_FORMAT


def picture_of(item: Item, size: tuple[int, int]) -> str:
    """Return the name for a picture of this size; x.jpg.png if JPEG cannot hold it."""
    from engine.vision.encode import fits  # imports Pillow, which --help does not need

    usual, other = pictures_of(item)
    return usual if fits(size, usual) else other


def pictures_of(item: Item) -> tuple[str, str]:
    """Return the usual name for a picture, and that for one too large for the usual format.

    The second is not x.png, which may be the name for another picture.
    """
    return with_other_format(usual_picture_of(item))


def with_other_format(usual: str) -> tuple[str, str]:
    return usual, usual + _OTHER_FORMAT


def crop_of(item: Item, size: tuple[int, int], number: int) -> str:
    """Return the name for a crop, the number-th one of its label in its picture.

    The name depends on nothing else, so that a resumed run finds it again. x.jpg has x.jpg,
    x-2.jpg, …; x-2.jpg has x-2-1.jpg, x-2-2.jpg, …: no two crops share a name.
    """
    path = PurePath(picture_of(item, size))
    return path.with_stem(crop_stem(path.stem, number)).as_posix()


def pictures_of_crop(path: PurePath) -> tuple[str, str]:
    """Return the names, without an extension, of the pictures that may have this crop."""
    plain = path.with_suffix("").as_posix()
    return plain, without_crop_number(plain)


def sources_of_crop(path: PurePath) -> tuple[str, ...]:
    """Return the names, without an extension, of the sources that may have this crop."""
    pictures = pictures_of_crop(path)
    return *pictures, *(each.rpartition("_")[0] for each in pictures)


def usual_picture_of(item: Item) -> str:
    """Return the name for a picture, unless it is too large for the format."""
    return output_of(item) + (".jpg" if item.frame else suffix_of(item.name))


def _path(name: str) -> str:
    return url_path(name) if is_url(name) else name
