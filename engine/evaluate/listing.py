"""A data set as a folder or a list of pictures, each with a label file of its own.

Labels are looked for where darknet does: the folder JPEGImages, or train2014 … val2017 inside
images, has them in labels; otherwise they lie beside the picture. Where darknet would find nothing
the folder labels beside images, and VOC's Annotations, are tried too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from engine.errors import InputError
from engine.evaluate import voc_labels, yolo_labels
from engine.evaluate.examples import Objects
from engine.evaluate.text import read_text
from engine.evaluate.truth import Entry, GroundTruth, coco_numbers
from engine.files.naming import shown
from engine.vision.extensions import is_picture

_PICTURE_FOLDERS = ("JPEGImages", "images")
_COCO_FOLDERS = ("train2014", "val2014", "train2017", "val2017")


def read(source: str, names: Sequence[str], *, labels: str | None = None) -> GroundTruth:
    """The pictures of a folder or of a list, one name a line; `labels` is the labels' folder."""
    folder = None if labels is None else Path(labels)
    if folder is not None and not folder.is_dir():
        raise InputError(f"--labels {shown(str(folder))}: expected a folder")
    path = Path(source)
    pictures = _in_folder(path) if path.is_dir() else read_list(path)
    if not pictures:
        raise InputError(f"{shown(source)}: names no picture")
    problems: list[str] = []
    found = [find_labels(picture, folder) for picture in pictures]
    entries = (
        Entry(image_id, str(picture), partial(_objects, file, tuple(names), problems))
        for image_id, picture, file in zip(_image_ids(pictures), pictures, found, strict=True)
    )
    return GroundTruth(
        *(source, tuple(names), coco_numbers(names), tuple(entries), problems),
        unlabelled=found.count(None),
        label_files=tuple(file for file in found if file is not None),
    )


def read_list(path: Path) -> list[Path]:
    """The files that a list names, relative to the current folder as in darknet, or to the list."""
    pictures = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        name = line.strip().strip("'\"")
        if name and not Path(name).name:
            raise InputError(f"{shown(str(path))}:{number}: expected a file's name, got {name!r}")
        if name:
            pictures.append(_beside(path, Path(name)))
    return pictures


def find_labels(picture: Path, folder: Path | None = None) -> Path | None:
    """The label file of a picture, if there is one."""
    if folder is not None:
        places = [folder / f"{picture.stem}{ending}" for ending in (".txt", ".xml")]
    else:
        places = list(_places(picture))
    return next((place for place in places if _is_file(place)), None)


def all_labels(picture: Path) -> list[Path]:
    """Every file that may be its labels."""
    return [place for place in _places(picture) if _is_file(place)]


def _places(picture: Path) -> Iterator[Path]:
    beside = picture.with_suffix(".txt")
    in_labels = _moved(picture, _PICTURE_FOLDERS, "labels")
    darknet_moves = "JPEGImages" in picture.parts or picture.parent.name in _COCO_FOLDERS
    order = (in_labels, beside) if darknet_moves else (beside, in_labels)
    yield from (place.with_suffix(".txt") for place in order if place is not None)
    annotation = _moved(picture, _PICTURE_FOLDERS, "Annotations")
    if annotation is not None:
        yield annotation.with_suffix(".xml")
    yield picture.with_suffix(".xml")


def _moved(picture: Path, folders: Sequence[str], other: str) -> Path | None:
    """The path with the last of `folders` in it called `other`."""
    parts = list(picture.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] in folders:
            parts[place] = other
            return Path(*parts)
    return None


def _in_folder(folder: Path) -> list[Path]:
    inner = next((folder / name for name in _PICTURE_FOLDERS if (folder / name).is_dir()), folder)
    return sorted(path for path in inner.iterdir() if is_picture(path.name))


def _beside(listing: Path, picture: Path) -> Path:
    beside = listing.parent / picture
    return beside if not _is_file(picture) and _is_file(beside) else picture


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long, for instance
        return False


def _image_ids(pictures: Sequence[Path]) -> Sequence[int | str]:
    """Numbers where every name is one, as COCO's are; else names, paths or places: what differs."""
    stems = [picture.stem for picture in pictures]
    if all(stem.isascii() and stem.isdigit() for stem in stems):
        numbers = [int(stem) for stem in stems]
        if len(set(numbers)) == len(numbers):
            return numbers
    if len(set(stems)) == len(stems):
        return stems
    paths = [str(picture) for picture in pictures]
    # A list may name a picture twice.
    return paths if len(set(paths)) == len(paths) else list(range(1, len(paths) + 1))


def _objects(
    file: Path | None, names: tuple[str, ...], problems: list[str], size: tuple[int, int]
) -> Objects:
    try:
        if file is None:
            return Objects.of([], [])
        if file.suffix == ".xml":
            return voc_labels.read(file, names, problems)
        return yolo_labels.read(file, size, names, problems)
    except InputError as error:
        problems.append(str(error))
        return Objects.of([], [])
