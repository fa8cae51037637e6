"""Data sets given as a folder or a list of pictures, each with a label file.

Labels are searched where darknet does: for pictures in a folder JPEGImages, or in train2014 …
val2017 inside a folder images, in the folder labels that replaces it; otherwise in the folder of
the picture. If darknet would find nothing, a folder labels next to images and VOC's Annotations are
tried as well.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence, Set, Sized
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from engine.errors import InputError
from engine.evaluate import voc_labels, yolo_labels
from engine.evaluate.examples import Objects
from engine.evaluate.ground_truth import Entry, GroundTruth, coco_category_ids
from engine.evaluate.text_files import read_text
from engine.files import data_set_yaml
from engine.files.naming import shown
from engine.vision.extensions import is_picture

_PICTURE_FOLDERS = ("JPEGImages", "images")
_COCO_FOLDERS = ("train2014", "val2014", "train2017", "val2017")
_ENDINGS = (".txt", ".xml")


class Written(Protocol):
    """The records in folders of labels: which picture each file was written for."""

    def file_of(self, picture: Path, place: Path) -> Path | None:
        """Return the label file of a picture, if the record is in a folder above `place`."""

    def picture_of(self, file: Path) -> str | None:
        """Return the picture of a label file."""

    def record_of(self, file: Path) -> Path | None:
        """Return the record that names the picture of a label file."""

    def file_of_moved(self, picture: Path, folder: Path) -> Path | None:
        """Return the label file in `folder` of a picture that has been moved."""

    def identity(self, picture: Path) -> str:
        """Return a picture's path in the form of picture_of()."""


def read(
    source: str,
    names: Sequence[str],
    *,
    written: Written,
    labels: str | None = None,
    left_out: Set[str] = frozenset(),
) -> GroundTruth:
    """Read the pictures of a folder, except those `left_out`, or of a list.

    `labels` is the folder of the labels, if given; files there repeat the folders of their
    pictures, or lie directly in it. If `written` records a picture's file, its name is irrelevant.
    """
    folder = None if labels is None else Path(labels)
    if folder is not None and not folder.is_dir():
        raise InputError(f"--labels {shown(str(folder))}: expected a folder")
    path = Path(source)
    pictures = _in_folder(path, left_out) if path.is_dir() else read_list(path)
    if not pictures:
        raise InputError(f"{shown(source)}: names no picture")
    problems: list[str] = []
    remarks: list[str] = []
    found = [_labels_of(each, folder, written) for each in pictures]
    entries = (
        Entry(image_id, str(picture), partial(_objects, file, tuple(names), problems, remarks))
        for image_id, picture, file in zip(_image_ids(pictures), pictures, found, strict=True)
    )
    remarks += [
        *_repeated(source, pictures),
        *_shared(source, pictures, found, written),
        *_numbered(source, found, written),
        *_written_for_others(source, pictures, found, written),
        *_refused(source, pictures, found, folder, written),
        *(_with_others(source, pictures, found, written) if folder is None else ()),
    ]
    return GroundTruth(
        *(source, tuple(names), coco_category_ids(names), tuple(entries), problems),
        unlabelled=found.count(None),
        label_files=tuple(dict.fromkeys(file for file in found if file is not None)),
        remarks=remarks,
    )


def _repeated(source: str, pictures: Sequence[Path]) -> Iterator[str]:
    """Yield a warning about pictures that a list names more than once."""
    counts = Counter(map(os.path.realpath, pictures))
    names = [path for path, count in counts.items() if count > 1]
    if names:
        what = f"names {len(names)} of {len(counts)} pictures more than once, such as"
        yield f"{shown(source)}: {what} {shown(names[0])}: each counts every time"


def _remark(source: str, which: str, files: Sized, example: str) -> str:
    return f"{shown(source)}: label files {which}: {len(files)}, such as {example}"


def _shared(
    source: str, pictures: Sequence[Path], found: Sequence[Path | None], written: Written
) -> Iterator[str]:
    """Yield a warning about label files whose name fits several pictures."""
    twins: dict[str, set[str]] = {}  # pictures that differ only in the extension
    for picture in pictures:
        twins.setdefault(written.identity(picture.with_suffix("")), set()).add(str(picture))
    owners: dict[str, set[str]] = {}
    for picture, file in zip(pictures, found, strict=True):
        if file is not None:
            mine = {str(picture)}
            if written.picture_of(file) is None:  # nothing says which of them it is for
                mine |= twins[written.identity(picture.with_suffix(""))]
            owners.setdefault(os.path.realpath(file), set()).update(map(os.path.realpath, mine))
    several = [file for file, own in owners.items() if len(own) > 1]
    if several:
        names = " and ".join(map(shown, sorted(owners[several[0]])[:2]))
        example = f"{shown(several[0])} for {names}"
        yield _remark(source, "whose names fit several pictures", several, example)


def _numbered(source: str, found: Sequence[Path | None], written: Written) -> Iterator[str]:
    """Yield a warning about numbered labels, such as x-2.txt next to x.txt, without a record.

    Pictures of several folders may share such names, and this run sees only one of them.
    """
    counted = {file for file in found if file is not None}
    unclear = {
        file: number
        for file in counted
        for number in (file.with_stem(f"{file.stem}-2"),)
        if number not in counted and _is_file(number) and written.picture_of(file) is None
    }
    if unclear:
        file = min(unclear)
        example = f"{shown(str(file))} next to {shown(str(unclear[file]))}. No record says which"
        yield _remark(source, "that may be of pictures in other folders", unclear, example)


def _written_for_others(
    source: str, pictures: Sequence[Path], found: Sequence[Path | None], written: Written
) -> Iterator[str]:
    """Yield a warning about labels whose record names pictures elsewhere."""
    others = [
        (picture, file, own)
        for picture, file in zip(pictures, found, strict=True)
        if file is not None and (own := written.picture_of(file))
        if own != written.identity(picture)
    ]
    if others:
        picture, file, own = others[0]
        example = f"{shown(str(file))} for {shown(str(picture))}, written for {shown(own)}"
        yield _remark(source, "that detect wrote for pictures at other places", others, example)


def _refused(
    source: str,
    pictures: Sequence[Path],
    found: Sequence[Path | None],
    folder: Path | None,
    written: Written,
) -> Iterator[str]:
    """Yield a warning about label files that have the names of pictures but are ignored."""
    refused = [
        (picture, place)
        for picture, file in zip(pictures, found, strict=True)
        if file is None
        for place in islice(filter(_is_file, _places(picture, folder)), 1)
    ]
    if refused:
        picture, place = refused[0]
        own = shown(written.picture_of(place) or "")
        example = (
            f"{shown(str(place))}, for {own} and not for {shown(str(picture))}. "
            f"If the names are right, remove {shown(str(written.record_of(place)))}"
        )
        yield _remark(source, "skipped, which detect wrote for other pictures", refused, example)


def _with_others(
    source: str, pictures: Sequence[Path], found: Sequence[Path | None], written: Written
) -> Iterator[str]:
    """Yield a warning about pictures with different labels in a second place."""
    others = {
        file: other
        for picture, file in zip(pictures, found, strict=True)
        if file is not None
        for other in (*all_labels(picture), *labels_next_to_folder(picture))
        if written.picture_of(other) in (None, written.identity(picture))
        if _is_other(file, other, written)
    }
    if others:
        file, other = next(iter(others.items()))
        what = f"pictures with other labels in a second place: {len(others)}"
        where = f"such as {shown(str(other))}, which is ignored. {shown(str(file))} is used"
        yield f"{shown(source)}: {what}, {where}"


def _is_other(file: Path, other: Path, written: Written) -> bool:
    """Return whether a second label file differs, as far as the two can be compared."""
    if other.suffix != file.suffix:
        return written.picture_of(file) is not None  # it may have been made by hand
    return _content(other) != _content(file)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # reported when the labels are read
        return b""


def read_list(path: Path) -> list[Path]:
    """Read the paths in a list, relative to the current folder as in darknet or to the list.

    The parent of the list's folder is tried last, as for the files that a .data file names.
    """
    data_set_yaml.refuse(path, "labelled pictures", InputError)
    pictures = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        name = line.strip().strip("'\"")
        if name and not Path(name).name:
            raise InputError(f"{shown(str(path))}:{number}: expected a file's name, got {name!r}")
        if name:
            pictures.append(_resolve(path, Path(name)))
    return pictures


def find_labels(picture: Path) -> Path | None:
    """Return the label file of a picture, if there is one."""
    return next(iter(all_labels(picture)), None)


def _labels_of(picture: Path, folder: Path | None, written: Written) -> Path | None:
    """Return the label file of a picture, in a folder if one is given.

    The first place with a file, or with a record of one, counts.
    """
    places = _places(picture, folder)
    for place in places:
        file = written.file_of(picture, place)
        if file is not None and (folder is None or _is_in(folder, file)):
            return file
        if _is_file(place):
            if written.picture_of(place) in (None, written.identity(picture)):
                return place
            return written.file_of_moved(picture, place.parent)
    folders = dict.fromkeys(place.parent for place in places)
    return next(filter(None, (written.file_of_moved(picture, each) for each in folders)), None)


def _is_in(folder: Path, file: Path) -> bool:
    return file.absolute().is_relative_to(folder.absolute())


def _places(picture: Path, folder: Path | None) -> list[Path]:
    """Return where the label file of a picture may be, in order of preference."""
    if folder is None:
        return [*_candidates(picture), *_next_to_folder(picture)]
    below = _with_inner_folders(folder, picture)
    return [below / (picture.stem + ending) for ending in _ENDINGS]


def _with_inner_folders(folder: Path, picture: Path) -> Path:
    """Return the folder of a picture's labels, with as many of its subfolders as exist."""
    inner = Path(os.path.realpath(picture.parent)).parts[1:]
    below = (folder.joinpath(*inner[first:]) for first in range(len(inner)))
    return next((each for each in below if each.is_dir()), folder)


def usual_label_file(picture: Path) -> Path:
    """Return where darknet first looks for the labels of a picture."""
    return next(_candidates(picture))


def all_labels(picture: Path) -> list[Path]:
    """Return all existing files that could hold the labels of a picture."""
    return [path for path in _candidates(picture) if _is_file(path)] if picture.name else []


def labels_next_to_folder(picture: Path) -> list[Path]:
    """Return a picture's existing label files next to the folders that hold it, innermost first.

    For pics/day1/x.jpg these are pics/labels/x.txt and labels/day1/x.txt. Darknet does not look
    there, because it expects a folder `images`.
    """
    return [path for path in _next_to_folder(picture) if _is_file(path)]


def _next_to_folder(picture: Path) -> Iterator[Path]:
    path = picture.absolute()
    folders = (folder for folder in path.parents if folder.name)
    for folder in folders:
        for name, ending in (("labels", ".txt"), ("Annotations", ".xml")):
            yield folder.with_name(name) / path.relative_to(folder).with_suffix(ending)


def _candidates(picture: Path) -> Iterator[Path]:
    same_folder = picture.with_suffix(".txt")
    in_labels = _replace_folder(picture, "labels")
    prefers_labels = "JPEGImages" in picture.parts or picture.parent.name in _COCO_FOLDERS
    order = (in_labels, same_folder) if prefers_labels else (same_folder, in_labels)
    yield from (path.with_suffix(".txt") for path in order if path is not None)
    annotation = _replace_folder(picture, "Annotations")
    if annotation is not None:
        yield annotation.with_suffix(".xml")
    yield picture.with_suffix(".xml")


def _replace_folder(picture: Path, name: str) -> Path | None:
    """Return the path with its innermost folder of pictures renamed to `name`."""
    parts = list(picture.parts)
    for index in range(len(parts) - 2, -1, -1):
        if parts[index] in _PICTURE_FOLDERS:
            parts[index] = name
            return Path(*parts)
    return None


def picture_folder(folder: Path) -> Path:
    """Return the folder images or JPEGImages of a data set, or else the folder itself."""
    return next((folder / name for name in _PICTURE_FOLDERS if (folder / name).is_dir()), folder)


def _in_folder(folder: Path, left_out: Set[str]) -> list[Path]:
    found = picture_folder(folder).iterdir()
    return sorted(path for path in found if is_picture(path.name) and path.name not in left_out)


def _resolve(list_file: Path, picture: Path) -> Path:
    # Darknet's data/train.txt names data/obj/1.jpg, relative to the parent of its folder.
    folder = list_file.absolute().parent
    places = picture, list_file.parent / picture, folder.parent / picture
    return next(filter(_is_file, places), picture)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for example, the name is too long
        return False


def _image_ids(pictures: Sequence[Path]) -> Sequence[int | str]:
    """Return distinct ids: the stems as numbers, the stems, the paths, or positions in the list."""
    stems = [picture.stem for picture in pictures]
    if all(stem.isascii() and stem.isdigit() for stem in stems):
        numbers = [int(stem) for stem in stems]
        if len(set(numbers)) == len(numbers):
            return numbers
    if len(set(stems)) == len(stems):
        return stems
    paths = [str(picture) for picture in pictures]
    # a list may contain a picture twice
    return paths if len(set(paths)) == len(paths) else list(range(1, len(paths) + 1))


def _objects(
    file: Path | None,
    names: tuple[str, ...],
    problems: list[str],
    remarks: list[str],
    size: tuple[int, int],
) -> Objects:
    if file is None:
        return Objects.of([], [])
    try:
        if file.suffix == ".xml":
            objects = voc_labels.read(file, size, names, problems)
        else:
            objects = yolo_labels.read(file, size, names, problems)
    except InputError as error:
        problems.append(str(error))
        return Objects.of([], [])
    boxes = map(tuple, objects.boxes.tolist())
    labels = Counter(zip(objects.class_ids.tolist(), boxes, strict=True))
    if repeated := len(objects.class_ids) - len(labels):
        what = "1 label repeats another" if repeated == 1 else f"{repeated} labels repeat others"
        remarks.append(f"{shown(str(file))}: {what}: each counts, but a detection matches only one")
    return objects
