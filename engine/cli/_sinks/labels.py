"""--save-txt: a YOLO label file for each picture."""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.cli._output_files import Existing, OutputFolder, ReservedPaths
from engine.cli._sinks.base import Sink
from engine.cli._sources import NamedMedia
from engine.errors import InputError
from engine.files.naming import shown
from engine.files.real_paths import real
from engine.outputs import file_names
from engine.outputs.label_digests import LabelDigests
from engine.sources.item import Item
from engine.sources.media import MediaKind

_log = logging.getLogger("engine")


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
        hint: str,
        names_before: Callable[[str], Iterable[str]],
    ) -> None:
        """Create the sink; `names_before` returns the earlier output names of a picture.

        `hint` is for the error if a file exists.
        """
        self._folder = OutputFolder("--save-txt", folder, reserved, existing=existing, hint=hint)
        self._where = f"--save-txt {shown(folder)}"
        self._with_score = with_score
        self._real = lru_cache(maxsize=256)(real)
        self._replaces = existing == "replace"
        self._digests = LabelDigests(self._folder.path)
        self._names_before = names_before
        self._refusals: list[InputError] = []
        self._kept: list[str] = []
        pictures = [each for each in known if not each.media.has_frames]
        for media, output in pictures:
            self._protect_labels_of(media.name, f"{output}.txt")
        archives = MediaKind.ARCHIVE
        self._folder.check(
            output if media.kind is archives else f"{output}.txt" for media, output in pictures
        )
        videos = [output for media, output in known if media.has_frames]
        frames = [each for output in videos for each in self._labels_of_frames(output)]
        self._folder.check(frames)
        self._protect(*(f"{output}.txt" for _, output in pictures), *frames)
        self._known = {output for _, output in known}
        self._warn_of_labels_left(
            each for media, output in known for each in self._left_by(media.name, output)
        )
        self._left: list[tuple[str, str, str]] = []

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        name = _name_of(item)
        if not self._replaces and self._digests.is_changed(name):
            self._kept.append(name)  # for example, an interrupted --overwrite was to replace it
            return
        try:
            if not item.frame:
                self._protect_labels_of(item.name, name)
            self._protect(name)
        except InputError as error:  # its name was not known in advance
            self._refusals.append(error)
            return
        if item.output not in self._known:
            self._known.add(item.output)
            self._left.extend(self._left_by(item.source_name, item.output))
        content = outcome.to_yolo(conf=self._with_score).encode()
        file = self._folder.new_file(name)
        written = file.path.relative_to(self._folder.path).as_posix()
        with self._digests.writing(written, content), file:
            file.part.write_bytes(content)

    def finish(self) -> None:
        self._warn_of_labels_left(self._left)
        if self._kept:
            what = "%s: keeps label files not written by a run, or edited since: %d, such as %s"
            _log.warning(what, self._where, len(self._kept), shown(self._kept[0]))
        if count := len(self._refusals):
            files = "label file was" if count == 1 else "label files were"
            raise InputError(f"{count} {files} not written: {self._refusals[0]}")

    def lacks(self, item: Item) -> bool:
        return not self._folder.has(_name_of(item))

    def found(self, item: Item) -> int | None:
        return self._digests.objects_in(_name_of(item))

    def _labels_of_frames(self, output: str) -> Iterator[str]:
        """Yield the existing label files of a video's frames."""
        target = self._folder.path / output
        for each in target.parent.glob(f"{glob.escape(target.name)}_[0-9]*.txt"):
            if file_names.video_of(each.stem) == target.name:
                yield str(each.relative_to(self._folder.path))

    def _protect_labels_of(self, picture: str, name: str) -> None:
        """Refuse to overwrite the existing labels of a picture, which may be ground truth.

        Labels next to its folder may be the output of an earlier run. Labels next to the picture
        itself take precedence over those in another folder.
        """
        target = self._folder.path / name
        is_next_to_it = self._real(target.parent) == self._real(Path(picture).parent)
        if is_next_to_it and target.stem != Path(picture).stem:
            problem = f"{target.name} next to {shown(picture)} would not be its labels"
            raise InputError(f"{self._where}: {problem}. Name another folder")
        if is_next_to_it:
            from engine.evaluate.dataset import all_labels  # slow to import, and rarely needed

            others = [each for each in all_labels(Path(picture)) if real(each) != real(target)]
            if others:
                problem = f"would take the place of {shown(others[0])}, the labels of a picture"
                raise InputError(f"{self._where}: {problem}. Name another folder")
        if is_next_to_it and self._replaces:
            problem = f"with --overwrite would replace labels of {shown(picture)}"
            raise InputError(f"{self._where}: {problem}. Name another folder")

    def _protect(self, *names: str) -> None:
        """Refuse to overwrite labels that were made or corrected by hand."""
        if not self._replaces:
            return
        if changed := [each for each in names if self._digests.is_changed(each)]:
            others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            problem = f"with --overwrite would replace {shown(changed[0])}{others}"
            were, them = ("were", "them") if others else ("was", "it")
            what = f"which {were} not written by a run or {were} edited since"
            hint = f"Name another folder, or remove {them}"
            raise InputError(f"{self._where}: {problem}, {what}. {hint}")

    def _left_by(self, source: str, output: str) -> Iterator[tuple[str, str, str]]:
        """Yield a source's edited labels under earlier names."""
        for before in self._names_before(source) if self._replaces else ():
            if before != output:
                for name in (f"{before}.txt", *self._labels_of_frames(before)):
                    if self._digests.is_changed(name):
                        yield name, source, output

    def _warn_of_labels_left(self, labels: Iterable[tuple[str, str, str]]) -> None:
        if left := list(labels):
            name, source, output = left[0]
            _log.warning(
                "%s: keeps edited labels under a source's earlier name: %d, such as %s of %s, "
                "whose labels are now called %s",
                *(self._where, len(left), shown(name), shown(source), shown(output)),
            )


def _name_of(item: Item) -> str:
    return f"{file_names.output_of(item)}.txt"
