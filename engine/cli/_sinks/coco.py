"""--json-style coco and --coco-dataset: COCO's list of results, and a whole data set."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from engine.cli._output_files import Existing
from engine.cli._output_names import OutputNames
from engine.cli._sinks.base import Sink
from engine.cli._sinks.text_output import TextOutput
from engine.cli._sources import NamedMedia
from engine.errors import ImageError, InputError
from engine.evaluate import coco_files
from engine.evaluate.ground_truth import GroundTruth, coco_category_ids
from engine.files.naming import escaped_bytes, shown
from engine.files.regular import open_regular
from engine.outputs import file_names
from engine.sources import archive
from engine.sources.item import Item
from engine.sources.media import MediaKind
from engine.version import __version__
from engine.vision import serialize

ImageId = int | str

_MAX_ANNOUNCED = 20  # maximum number of classes logged

_log = logging.getLogger("engine")


@dataclass(frozen=True)
class CocoImages:
    """The numbers of pictures and classes in an annotation file."""

    source: str
    ids: Mapping[str, Sequence[ImageId]]  # by file_name
    last_names: Mapping[str, str]  # file_name by the name without folders
    _announced: set[int | str] = field(default_factory=set)  # logged classes and remarks

    @classmethod
    def read(cls, source: str) -> CocoImages:
        truth = coco_files.read_truth(source, pictures="", needs_objects=False)
        paths = [PurePath(entry.path) for entry in truth.entries]
        ids: dict[str, list[ImageId]] = {}
        for path, entry in zip(paths, truth.entries, strict=True):
            ids.setdefault(escaped_bytes(path.as_posix()), []).append(entry.image_id)
        return cls(source, ids, {path.name: path.as_posix() for path in paths})

    def id_of(self, name: str) -> ImageId:
        """Return the id of a picture, matched by name and as many folders as the file has.

        The name alone is not unique: different cameras or days use the same numbers.
        """
        for path in (PurePath(name), Path.cwd() / name, Path(name).resolve()):
            parts = path.parts
            for start in range(len(parts)):
                found = self.ids.get(escaped_bytes("/".join(parts[start:])))
                if found is not None and len(found) > 1:
                    both = f"{found[0]} and {found[1]}"
                    what = f"has the file_name of two images of {shown(self.source)}, {both}"
                    raise InputError(f"{shown(name)}: {what}")
                if found is not None:
                    return found[0]
        message = f"{shown(name)}: is not a picture of --images-json {shown(self.source)}"
        alike = self.last_names.get(PurePath(name).name)
        if alike is not None:
            message += f", which has {shown(alike)}. The folders of both must be the same"
        raise InputError(message)

    def truth_for(self, labels: Sequence[str]) -> GroundTruth:
        truth = coco_files.read_truth(self.source, labels, needs_objects=False)
        for remark in truth.remarks:
            if remark not in self._announced:
                _log.warning("%s", remark)
        self._announced.update(truth.remarks)
        return truth

    def announce(self, new_ids: Mapping[int, str]) -> None:
        """Warn once about each class that gets a new id because the file has no category for it."""
        new = [
            f"{shown(new_ids[each])} ({each})" for each in sorted(new_ids.keys() - self._announced)
        ]
        self._announced.update(new_ids)
        if new:
            more = ", …" if len(new) > _MAX_ANNOUNCED else ""
            _log.warning(
                "%s: has no category for classes that were found, which get new ids: %s%s",
                *(shown(self.source), ", ".join(new[:_MAX_ANNOUNCED]), more),
            )


class _Categories:
    """The category id of each class, and the classes that were found but are not in the file."""

    def __init__(self, images: CocoImages | None, labels: Sequence[str]) -> None:
        self._images = images
        self._labels = labels
        self._without: Set[int] = frozenset()
        self.ids: Sequence[int] = coco_category_ids(labels)
        if images is not None:
            truth = images.truth_for(labels)
            self.ids, self._without = truth.categories, truth.without_category
        self._new: dict[int, str] = {}  # labels by id

    def add(self, class_id: int) -> int:
        """Return the id for an object that was found."""
        if class_id in self._without:
            self._new[self.ids[class_id]] = self._labels[class_id]
        return self.ids[class_id]

    def announce(self) -> None:
        if self._images is not None:
            self._images.announce(self._new)


class _ImageIds:
    """Assigns an id to each picture; two pictures with one id are an error."""

    def __init__(self, option: str, images: CocoImages | None, known: Sequence[NamedMedia]) -> None:
        self._option = option
        self._images = images
        self._users: dict[ImageId, str] = {}
        videos = [each.media.name for each in known if each.media.has_frames]
        found = [each for each in known if each.media.kind is not MediaKind.BROKEN]
        if videos and len(found) > 1:
            raise InputError(
                f"{option}: {shown(videos[0])}: its frames have the ids 0, 1, …, which pictures of "
                "other sources may have, too. Detect in it alone, or use --coco-dataset"
            )
        for source in known:
            for item in items_of(source):
                self.id_of(item)
        self._users.clear()

    def id_of(self, item: Item) -> ImageId:
        image_id = self._find(item)
        user = self._users.setdefault(image_id, item.name)
        if user != item.name:
            raise InputError(
                f"{self._option}: image_id {image_id} of two pictures: {shown(user)} and "
                f"{shown(item.name)}. Number them with --images-json, or use --coco-dataset"
            )
        return image_id

    def _find(self, item: Item) -> ImageId:
        if item.frame:
            return item.frame.number
        if self._images is not None:
            return self._images.id_of(_file_name(item) if item.member else item.name)
        number = serialize.trailing_number(item.name)
        if number is None:
            raise InputError(
                f"{self._option}: {shown(item.name)} does not end in a number for image_id. "
                "Name its annotation file with --images-json, or use --coco-dataset"
            )
        return number


def items_of(known: NamedMedia) -> Iterator[Item]:
    """Yield the items of a source that are known before it is read."""
    name = known.media.name
    if known.media.kind in (MediaKind.PICTURE, MediaKind.URL):
        yield Item(name, name, output=known.output)
    elif known.media.kind is MediaKind.ARCHIVE:
        # reported when it is read
        with suppress(ImageError, *archive.ERRORS), open_regular(name, ImageError) as file:
            for path in archive.paths(file):
                output = f"{known.output}/{archive.output_of(path)}"
                yield Item(f"{name}#{path}", name, output=output, member=path)


class CocoResults(Sink):
    """COCO's results: a list of boxes with the ids of pictures and categories."""

    def __init__(
        self,
        path: str,
        images: CocoImages | None,
        known: Sequence[NamedMedia],
        *,
        existing: Existing,
    ) -> None:
        self._images = images
        self._ids = _ImageIds("--json-style coco", images, known)
        self._out = TextOutput(path, existing=existing, incremental=False)
        self.is_stdout = self._out.is_stdout
        self._categories = _Categories(None, ())
        self._count = 0

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        self._categories = _Categories(self._images, labels)
        has_names = any(map(coco_files.is_name, labels))
        if not (self._images or has_names) and len(labels) == len(serialize.COCO_CATEGORIES):
            _log.warning(
                "--json-style coco: the %d classes have no names, so category_id counts from 1 "
                "without the gaps of COCO's numbers. Name them with --names",
                len(labels),
            )
        self._out.open()
        self._out.write("[\n")

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        for found in outcome:
            self._categories.add(found.class_id)
        for entry in outcome.to_coco(self._ids.id_of(item), self._categories.ids):
            self._out.write(",\n" * bool(self._count) + serialize.json_text(entry))
            self._count += 1

    def finish(self) -> None:
        self._out.write("\n]\n")
        self._out.keep()
        self._categories.announce()

    def discard(self) -> None:
        self._out.discard()


class CocoDataset(Sink):
    """A COCO data set of the detections, for annotation tools.

    Without an annotation file, pictures are numbered from 1 or get the ids of COCO's results, if
    those are written. Annotations are written immediately, the shorter list of pictures at the end.
    """

    def __init__(
        self,
        path: str,
        images: CocoImages | None,
        known: Sequence[NamedMedia],
        *,
        existing: Existing,
        naming: OutputNames,
        has_results: bool = False,
    ) -> None:
        self._naming = naming
        self._numbers = images
        has_ids = bool(images) or has_results
        self._ids = _ImageIds("--coco-dataset", images, known) if has_ids else None
        self._out = TextOutput(path, existing=existing, incremental=False)
        self.is_stdout = self._out.is_stdout
        self._categories = _Categories(None, ())
        self._images: list[str] = []
        self._names: set[str] = set()
        self._file_names: set[str] = set()
        self._count = 0  # annotations so far

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        self._categories = _Categories(self._numbers, labels)
        categories = [
            {"id": number, "name": label, "supercategory": ""}
            for number, label in zip(self._categories.ids, labels, strict=True)
        ]
        info = {"description": f"found by darknet-engine {__version__}", **about}
        head = json.dumps({"info": info, "licenses": [], "categories": categories}, indent=1)
        self._out.open()
        self._out.write(head[: -len("\n}")] + ',\n "annotations": [\n  ')

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        if not item.frame:
            if item.name in self._names:
                _log.warning(
                    "--coco-dataset: %s is included once, although it was named twice",
                    shown(item.name),
                )
                return
            self._names.add(item.name)
        image_id = self._ids.id_of(item) if self._ids else 1 + len(self._images)
        width, height = outcome.size
        name = _file_name(item)
        if not item.frame:  # with its folders, even if output names are flat
            name = (PurePath(self._naming.folders_left_out(item)) / name).as_posix()
        if not item.frame:
            name = self._unused(name, item.name)
        image = {
            "id": image_id,
            "file_name": name,
            "width": width,
            "height": height,
        }
        self._images.append(serialize.json_text(image))
        for found in outcome:
            box = found.box.clipped(width, height)
            if box.width > 0 and box.height > 0:
                self._add(image_id, found, box)

    def finish(self) -> None:
        images = ",\n  ".join(self._images)
        self._out.write(f'\n ],\n "images": [\n  {images}\n ]\n}}\n')
        self._out.keep()
        self._categories.announce()

    def discard(self) -> None:
        self._out.discard()

    def _add(self, image_id: ImageId, found: Any, box: Any) -> None:
        self._count += 1
        left, top, width, height = map(serialize.pixels, (box.left, box.top, box.width, box.height))
        annotation = {
            "id": self._count,
            "image_id": image_id,
            "category_id": self._categories.add(found.class_id),
            "bbox": [left, top, width, height],
            "area": serialize.pixels(width * height),
            "iscrowd": 0,
            "segmentation": [],
            "score": serialize.json_number(serialize.score(found.score)),
            **serialize.track_id(found),
        }
        self._out.write(",\n  " * (self._count > 1) + serialize.json_text(annotation))

    def _unused(self, wanted: str, source: str) -> str:
        """Return a file_name that no other picture has; log it if it gets a number."""
        path, name, number = PurePath(wanted), wanted, 1
        while name in self._file_names:
            number += 1
            name = path.with_name(f"{path.stem}-{number}{path.suffix}").as_posix()
        if number > 1:
            what = "--coco-dataset: %s: has the name of another picture, so its file_name is %s"
            _log.warning(what, shown(source), shown(name))
        self._file_names.add(name)
        return name


def _file_name(item: Item) -> str:
    """Return the path below the common folder of all pictures, as labelling tools expect it."""
    if item.frame:
        return f"{file_names.output_of(item)}.jpg"
    folder = PurePath(item.folder or PurePath(item.output).parent)
    return (folder / PurePath(item.member or item.name).name).as_posix()
