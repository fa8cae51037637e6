"""--save-mot: tracks in MOTChallenge's text format, a file for each video or folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from engine.cli import _output_files
from engine.cli._output_files import Existing, OutputFolder, ReservedPaths
from engine.cli._sinks.base import Sink
from engine.cli._sources import NamedMedia
from engine.cli._tracking import FrameNumbers, Tracked, sequence_of, sequence_of_item
from engine.errors import EngineError, ImageError, InputError
from engine.files.atomic import NewFile, unwritable
from engine.files.naming import shown
from engine.sources.item import Item
from engine.sources.media import MediaKind

_OPTION = "--save-mot"
_SUFFIX = ".txt"


def is_mot_file(target: str) -> bool:
    """Return whether --save-mot names a single file instead of a folder."""
    return Path(target).suffix.lower() == _SUFFIX and not Path(target).is_dir()


class MotTracks(Sink):
    """Lines of frame, identity, left, top, width, height, score, -1, -1, -1; all counted from 1."""

    def __init__(
        self,
        target: str,
        reserved: ReservedPaths,
        known: Sequence[NamedMedia],
        *,
        existing: Existing,
    ) -> None:
        self._target = target
        self._existing = existing
        self._folder: OutputFolder | None = None
        self._files: dict[str, NewFile] = {}
        self._pictures: Counter[str] = Counter()  # number of pictures in each sequence
        self._numbers = FrameNumbers(known)
        self._current = ""
        self._out: IO[str] | None = None
        names = {
            sequence_of(media.name, output, is_video=media.has_frames)
            for media, output in known
            if media.kind not in (MediaKind.BROKEN, MediaKind.ARCHIVE)
        }
        if target == "-":
            raise InputError(f"{_OPTION} -: expected a file or a folder")
        if is_mot_file(target):
            overwrite = existing == "replace"
            _output_files.check_output(_OPTION, target, reserved, overwrite=overwrite)
            if len(names) > 1:
                raise self._too_many_error()
        elif _output_files.is_named_like_file(target):
            expected = f"expected a folder, or a name that ends in {_SUFFIX}"
            raise InputError(f"{_OPTION} {shown(target)}: {expected}")
        else:
            hint = _output_files.HINT  # tracks cannot be resumed
            self._folder = OutputFolder(_OPTION, target, reserved, existing=existing, hint=hint)
            self._folder.check(each.name + _SUFFIX for each in names)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        sequence = sequence_of_item(item)
        self._pictures[sequence.key] += 1
        if item.frame:
            frame = 1 + item.frame.number
        else:
            frame = self._numbers.of(item) or self._pictures[sequence.key]
        lines = (
            f"{frame},{found.track_id},{found.box.left + 1:.2f},{found.box.top + 1:.2f},"
            f"{found.box.width:.2f},{found.box.height:.2f},{found.score:.6g},-1,-1,-1\n"
            for found in outcome
        )
        self._write(sequence, "".join(lines))

    def fail(self, item: Item, error: ImageError) -> None:
        if item.is_picture:
            self._pictures[sequence_of_item(item).key] += 1

    def finish(self) -> None:
        self._close()
        errors: list[EngineError] = []
        for file in self._files.values():
            try:
                file.keep()
            except EngineError as error:
                errors.append(error)
        self._files.clear()
        if errors:
            raise errors[0]

    def discard(self) -> None:
        self._close()
        for file in self._files.values():
            file.discard()

    def _write(self, sequence: Tracked, text: str) -> None:
        if sequence.key not in self._files:
            self._files[sequence.key] = self._new_file(sequence)
        file = self._files[sequence.key]
        try:
            if self._out is None or self._current != sequence.key:
                self._close()
                self._current = sequence.key
                self._out = file.part.open("a", encoding="utf-8")
            self._out.write(text)
        except OSError as error:
            raise unwritable(file.path, error) from None

    def _new_file(self, sequence: Tracked) -> NewFile:
        if self._folder is not None:
            return self._folder.new_file(sequence.name + _SUFFIX)
        if self._files:
            raise self._too_many_error()
        return NewFile(self._target, overwrite=self._existing == "replace", hint=_output_files.HINT)

    def _close(self) -> None:
        out, self._out = self._out, None
        if out is not None:
            try:
                out.close()
            except OSError as error:
                raise unwritable(self._files[self._current].path, error) from None

    def _too_many_error(self) -> InputError:
        where = f"{_OPTION} {shown(self._target)}"
        return InputError(f"{where}: one file for several videos or folders. Name a folder")
