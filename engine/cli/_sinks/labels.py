"""--save-txt: a YOLO label file for each picture."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.cli._label_digests import LabelDigests
from engine.cli._output_files import Existing, OutputFolder, ReservedPaths, real
from engine.cli._sinks import file_names
from engine.cli._sinks.base import Sink
from engine.cli._sources import NamedMedia
from engine.errors import InputError
from engine.evaluate.dataset import all_labels, labels_next_to_folder
from engine.files.naming import shown
from engine.sources.item import Item
from engine.sources.media import MediaKind


class Labels(Sink):
    """Label files in a folder; a picture without boxes gets an empty one."""

    has_names = True

    def __init__(
        self,
        folder: str,
        reserved: ReservedPaths,
        known: Sequence[NamedMedia],
        *,
        with_score: bool,
        existing: Existing,
    ) -> None:
        self._folder = OutputFolder("--save-txt", folder, reserved, existing=existing)
        self._with_score = with_score
        self._real = lru_cache(maxsize=256)(real)
        self._replaces = existing == "replace"
        self._digests = LabelDigests(self._folder.path)
        pictures = [each for each in known if not each.media.has_frames]
        for media, output in pictures:
            self._protect_labels_of(media.name, f"{output}.txt")
        archives = MediaKind.ARCHIVE
        self._folder.check(
            output if media.kind is archives else f"{output}.txt" for media, output in pictures
        )
        videos = [output for media, output in known if media.has_frames]
        self._folder.check(each for output in videos for each in self._labels_of_frames(output))
        for _, output in pictures:
            self._protect(f"{output}.txt")
        for output in videos:
            for name in self._labels_of_frames(output):
                self._protect(name)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        name = _name_of(item)
        if not self._replaces and self._digests.is_changed(name):
            return  # an interrupted --overwrite has wanted to replace this picture's outputs
        if not item.frame:
            self._protect_labels_of(item.name, name)
        self._protect(name)
        content = outcome.to_yolo(conf=self._with_score).encode()
        with self._folder.new_file(name) as file:
            file.part.write_bytes(content)
        self._digests.add(file.path.relative_to(self._folder.path).as_posix(), content)

    def lacks(self, item: Item) -> bool:
        return not self._folder.has(_name_of(item))

    def found(self, item: Item) -> int | None:
        return self._folder.lines_of(_name_of(item))

    def _labels_of_frames(self, output: str) -> Iterator[str]:
        """Yield the existing label files of a video's frames."""
        target = self._folder.path / output
        for each in target.parent.glob(f"{glob.escape(target.name)}_[0-9]*.txt"):
            if file_names.video_of(each.stem) == target.name:
                yield str(each.relative_to(self._folder.path))

    def _protect_labels_of(self, picture: str, name: str) -> None:
        """Refuse to overwrite the existing labels of a picture, which may be ground truth.

        Those next to its folder may be the output of an earlier run. Labels next to the picture
        itself would count in place of those in another folder.
        """
        target = self._folder.path / name
        is_next_to_it = self._real(target.parent) == self._real(Path(picture).parent)
        if is_next_to_it and target.stem != Path(picture).stem:
            where = f"--save-txt {shown(self._folder.path)}"
            problem = f"{target.name} next to {shown(picture)} would not be its labels"
            raise InputError(f"{where}: {problem}. Name another folder")
        if is_next_to_it:
            others = [each for each in all_labels(Path(picture)) if real(each) != real(target)]
            if others:
                where = f"--save-txt {shown(self._folder.path)}"
                problem = f"would take the place of {shown(others[0])}, the labels of a picture"
                raise InputError(f"{where}: {problem}. Name another folder")
        if not self._replaces:
            return
        labels = [*all_labels(Path(picture)), *labels_next_to_folder(Path(picture))]
        is_label_file = real(target) in map(real, labels)
        if is_next_to_it or (is_label_file and self._digests.is_changed(name)):
            where = f"--save-txt {shown(self._folder.path)}"
            problem = f"with --overwrite would replace labels of {shown(picture)}"
            raise InputError(f"{where}: {problem}. Name another folder")

    def _protect(self, name: str) -> None:
        """Refuse to overwrite labels that somebody has made or corrected."""
        if self._replaces and self._digests.is_changed(name):
            where = f"--save-txt {shown(self._folder.path)}"
            problem = f"with --overwrite would replace {shown(name)}, which no run has written"
            raise InputError(f"{where}: {problem} as it is. Name another folder, or remove it")


def _name_of(item: Item) -> str:
    return f"{file_names.output_of(item)}.txt"
