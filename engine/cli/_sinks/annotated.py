"""-o: pictures and videos with their boxes drawn, in a folder or one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli import _targets
from engine.cli._sinks import naming
from engine.cli._sinks.base import Sink
from engine.errors import ImageError, InputError
from engine.files.atomic import NewFile
from engine.files.naming import shown
from engine.sources.item import Item
from engine.sources.media import VIDEO_EXTENSIONS
from engine.vision.encode import encode, format_of

if TYPE_CHECKING:
    from engine.cli._sinks.movie import Movie


def is_one_file(target: str) -> bool:
    """Whether -o names a picture or video to be, not a folder."""
    path = Path(target)
    return not path.is_dir() and (
        format_of(path) is not None or path.suffix.lower() in VIDEO_EXTENSIONS
    )


class Annotated(Sink):
    def __init__(self, target: str, taken: _targets.Taken, known: int, *, overwrite: bool) -> None:
        """`known` is how many pictures and videos are sure to come."""
        self._overwrite = overwrite
        self._file: Path | None = None
        self._movie: Movie | None = None
        self._sources: set[str] = set()  # of what went into the one file
        if is_one_file(target):
            _targets.check_file("-o", target, taken, overwrite=overwrite)
            self._file = Path(target)
            if known > 1:
                raise self._several()
        else:
            folder = _targets.make_folder("-o", target)
            self._names = _targets.NewNames(folder, taken, overwrite=overwrite)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        if item.frame and (self._file is None or self._file.suffix.lower() in VIDEO_EXTENSIONS):
            self._movie_of(item).add(outcome.plot(), item.frame)
            return
        self._end_movie()
        picture = outcome.plot()
        file = self._new_file(item, naming.name_of(item, picture.size))
        content = encode(picture, file.path)
        with file:
            file.part.write_bytes(content)

    def fail(self, item: Item, error: ImageError) -> None:
        self._end_movie()

    def finish(self) -> None:
        self._end_movie()

    def discard(self) -> None:
        if self._movie:
            self._movie.discard()

    def _movie_of(self, item: Item) -> Movie:
        from engine.cli._sinks.movie import Movie, ending_for

        assert item.frame
        if self._movie is None or self._movie.video != item.frame.video:
            self._end_movie()
            stem = naming.stem_of_video(item.frame.video)
            file = self._new_file(item, stem + ending_for(item.frame.video))
            self._movie = Movie(file, item.frame)
        return self._movie

    def _end_movie(self) -> None:
        if self._movie:
            self._movie.finish()
            self._movie = None

    def _new_file(self, item: Item, name: str) -> NewFile:
        source = item.frame.video if item.frame else item.name
        if self._file is None:
            return self._names.new_file(name, source=source)
        if self._sources:
            raise self._several()
        if (self._file.suffix.lower() in VIDEO_EXTENSIONS) != bool(item.frame):
            kinds = ("a video", "a picture") if item.frame else ("a picture", "a video")
            raise InputError(
                f"-o {shown(str(self._file))}: {kinds[0]} does not fit into {kinds[1]}"
            )
        _targets.Taken([source]).claim("-o", str(self._file))
        self._sources.add(source)
        return NewFile(self._file, overwrite=self._overwrite, hint=_targets.HINT)

    def _several(self) -> InputError:
        where = f"-o {shown(str(self._file))}"
        return InputError(f"{where}: one file for several pictures. Name a folder")
