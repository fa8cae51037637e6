"""-o: pictures and videos with boxes drawn on them, in a folder or one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli import _output_files
from engine.cli._output_files import Existing
from engine.cli._sinks.base import Sink, drawing
from engine.cli._sources import NamedMedia
from engine.errors import ImageError, InputError
from engine.files.atomic import NewFile
from engine.files.naming import shown
from engine.outputs import file_names
from engine.outputs.record import (
    add_file,
    does_file_show_more,
    identity,
    is_file_due,
    source_of_file,
    warn_of_other_classes,
)
from engine.sources.item import Item
from engine.sources.media import MediaKind
from engine.sources.video_writer import check_extension, extension_for
from engine.vision.encode import encode, format_of
from engine.vision.extensions import VIDEO_EXTENSIONS

if TYPE_CHECKING:
    from engine.sources.video_writer import VideoWriter


def is_one_file(target: str) -> bool:
    """Return whether -o names a single picture or video instead of a folder."""
    path = Path(target)
    is_video = path.suffix.lower() in VIDEO_EXTENSIONS
    return not path.is_dir() and (is_video or format_of(path) is not None)


def _refuse_other_files(target: str) -> None:
    """Refuse a name with the extension of an unwritable file, which would become a folder."""
    path = Path(target)
    if target == "-":
        raise InputError("-o -: expected a folder or a file: pictures do not go to stdout")
    if _output_files.is_named_like_file(target):
        raise InputError(
            f"-o {shown(target)}: cannot write {path.suffix} files: expected a folder, or a name "
            "such as found.jpg or found.mp4"
        )


class Annotated(Sink):
    def __init__(
        self,
        target: str,
        reserved: _output_files.ReservedPaths,
        known: Sequence[NamedMedia],
        *,
        existing: Existing,
        hint: str,
        show_tiles: bool = False,
        at_once: int = 1,
        holds: tuple[str, ...] = (),
    ) -> None:
        """Create the sink; `known` holds the pictures and videos known in advance.

        The frames of `at_once` videos are interleaved. `holds` is what the record says of a single
        file.
        """
        self._holds = holds
        self._existing = existing
        self._hint = hint  # shown if a file exists
        self._show_tiles = show_tiles
        self._file: Path | None = None
        self._is_file_due = False  # whether the existing file is to be replaced
        self._file_shows_more = False
        self._is_cut_short = False
        self._source = ""  # source of the single file, once known
        self._at_once = at_once
        self._videos: dict[str, VideoWriter] = {}  # by output name, the latest last
        self._live = {output for media, output in known if media.is_live}  # read concurrently
        self._reserved = reserved
        self._sources: set[str] = set()  # sources written to the single file
        if is_one_file(target):
            if Path(target).suffix.lower() in VIDEO_EXTENSIONS:
                check_extension(target, "-o ")
            _output_files.check_output(
                *("-o", target, reserved),
                overwrite=existing != "refuse",
                hint=hint,
            )
            self._file = Path(target)
            self._is_file_due = existing == "resume" and is_file_due(self._file, holds)
            self._file_shows_more = self._is_file_due and does_file_show_more(self._file, holds)
            if len(known) > 1:
                raise self._too_many_error()
            if known and (media := known[0].media).kind is not MediaKind.BROKEN:
                self._check_kind(is_video=media.has_frames)
                if media.kind is not MediaKind.ARCHIVE:
                    self._source = media.name
                    self._check_source(media.name)
        else:
            _refuse_other_files(target)
            self._folder = _output_files.OutputFolder(
                "-o", target, reserved, existing=existing, hint=hint
            )
            self.has_names = self.has_pixels = True
            self._folder.refuse_pictures_here(each.media for each in known)
            self._folder.check(map(_name_for, known))

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        if self._file_shows_more and self._file is not None and self._file.exists():
            warn_of_other_classes(str(self._file))
        if self._file is not None and self._existing == "replace" and self._file.exists():
            add_file(self._file, self._holds, source=self._source, is_done=False)
            self._is_file_due = True

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        with drawing("-o", item.name):
            self._write(item, outcome)

    def _write(self, item: Item, outcome: Any) -> None:
        if item.frame and self._takes_videos:
            self._video_of(item).add(outcome.plot(show_tiles=self._show_tiles), item.frame)
            return
        self._finish_videos()
        picture = outcome.plot(show_tiles=self._show_tiles)
        file = self._new_file(item, file_names.picture_of(item, picture.size))
        content = encode(picture, file.path)
        self._record()
        with file:
            file.part.write_bytes(content)
        self._record_end()

    def fail(self, item: Item, error: ImageError) -> None:
        if error.result is not None and item.frame and self._takes_videos:
            self.take(item, error.result, 0)  # the video continues
            return
        if item.is_picture:
            self._finish_videos()
        if item.output in self._videos:
            if item.output not in self._live:
                self.cut_short()
            self._videos.pop(item.output).finish()

    def lacks(self, item: Item) -> bool:
        if self._file is not None:
            self._check_source(item.source_name)
            return not self._file.exists() or self._is_file_due
        names = [_video_for(item)] if item.frame else file_names.pictures_of(item)
        return not any(map(self._folder.has, names))

    def cut_short(self) -> None:
        if self._file is not None and self._videos.keys() - self._live:
            add_file(self._file, self._holds, source=self._source, is_done=False)
            self._is_cut_short = True

    def finish(self) -> None:
        self._live.clear()
        self._finish_videos()

    def discard(self) -> None:
        for video in self._videos.values():
            video.discard()

    @property
    def _takes_videos(self) -> bool:
        return self._file is None or self._file.suffix.lower() in VIDEO_EXTENSIONS

    def _video_of(self, item: Item) -> VideoWriter:
        from engine.sources.video_writer import VideoWriter

        assert item.frame
        video = self._videos.pop(item.output, None)
        if video is None:
            self._finish_videos(but=self._at_once - 1)
            video = VideoWriter(self._new_file(item, _video_for(item)), item)
            self._record()
        self._videos[item.output] = video
        return video

    def _finish_videos(self, *, but: int = 0) -> None:
        """Complete the videos so far, except live ones and the `but` latest."""
        over = [each for each in self._videos if each not in self._live]
        for output in over[: max(0, len(over) - but)]:
            self._videos.pop(output).finish()
            self._record_end()

    def _new_file(self, item: Item, name: str) -> NewFile:
        if self._file is None:
            return self._folder.new_file(name)
        if self._sources:
            self._reserved.refuse(self._file)
            raise self._too_many_error()
        self._check_kind(is_video=bool(item.frame))
        self._source = item.source_name
        self._sources.add(self._source)
        overwrite = self._existing == "replace" or self._is_file_due
        return NewFile(self._file, overwrite=overwrite, hint=self._hint)

    def _record(self) -> None:
        """Record the single file before it appears, but not before it replaces another."""
        if self._file is not None and not self._is_file_due:
            add_file(self._file, self._holds, source=self._source)

    def _record_end(self) -> None:
        if self._file is not None and self._is_file_due and not self._is_cut_short:
            add_file(self._file, self._holds, source=self._source)

    def _check_kind(self, *, is_video: bool) -> None:
        assert self._file
        if (self._file.suffix.lower() in VIDEO_EXTENSIONS) != is_video:
            got, expected = ("a video", "a picture") if is_video else ("a picture", "a video")
            raise InputError(f"-o {shown(str(self._file))}: expected {expected}, got {got}")

    def _check_source(self, name: str) -> None:
        """Refuse to resume a file that an earlier run made from another source."""
        if self._existing != "resume" or self._file is None or not self._file.exists():
            return
        source = source_of_file(self._file)
        if source not in ("", identity(name)):
            problem = f"holds what a run made of {shown(source)}, not of {shown(name)}"
            raise InputError(
                f"-o {shown(str(self._file))}: {problem}. Name another, or use --overwrite"
            )

    def _too_many_error(self) -> InputError:
        where = f"-o {shown(str(self._file))}"
        return InputError(f"{where}: one file for several pictures. Name a folder")


def _name_for(source: NamedMedia) -> str:
    """Return the file that will be written for a source."""
    if source.media.kind is MediaKind.ARCHIVE:
        return source.output  # the name of a folder
    item = Item(source.media.name, source.media.name, output=source.output)
    return _video_for(item) if source.media.has_frames else file_names.usual_picture_of(item)


def _video_for(item: Item) -> str:
    return item.output + extension_for(item.frame.video if item.frame else item.name)
