"""The records in the output folders, implemented as sinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.cli._output_names import OutputNames
from engine.cli._sinks.base import Sink
from engine.cli._sources import NamedMedia
from engine.errors import ImageError
from engine.outputs.record import warn_of_other_classes
from engine.sources.item import Item
from engine.sources.media import MediaKind


class Record(Sink):
    """Records which picture each name belongs to, information that no other output holds."""

    def __init__(
        self, naming: OutputNames, known: Sequence[NamedMedia], *, at_once: int = 1
    ) -> None:
        """Create the sink; the frames of `at_once` videos are interleaved."""
        self._naming = naming
        self._at_once = at_once
        self._live = {output for media, output in known if media.is_live}  # never unfinished
        self._unfinished: dict[str, str] = {}  # sources of videos by name, the latest last
        self._has_warned = False  # about pictures that hide other classes
        self._archives = [each for each in known if each.media.kind is MediaKind.ARCHIVE]

    def lacks(self, item: Item) -> None:
        if not self._has_warned and self.shows_more(item):
            self._has_warned = True
            warn_of_other_classes(item.name)
        if item.is_picture and self._naming.has_files(item.output, item.source_name):
            self._claim(item)  # complete files may be older than the record

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        for media, output in self._archives:
            self._naming.claim(output, media.name)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        self._follow_videos(item)
        self._claim(item)

    def fail(self, item: Item, error: ImageError) -> None:
        if item.frame and error.result is not None:
            self.take(item, error.result, 0)  # an annotated video contains this frame
        elif item.is_picture and not item.frame:
            self._follow_videos(item)
        elif item.output in self._unfinished and not item.is_picture:
            self._leave_unfinished(item.output)

    def cut_short(self) -> None:
        for name in list(self._unfinished):
            self._leave_unfinished(name)

    def _follow_videos(self, item: Item) -> None:
        """Keep only the videos that may have more frames."""
        if not item.frame:
            self._unfinished.clear()
        elif item.output not in self._live:
            self._unfinished.pop(item.output, None)
            while len(self._unfinished) >= self._at_once:
                self._unfinished.pop(next(iter(self._unfinished)))
            self._unfinished[item.output] = item.source_name

    def _leave_unfinished(self, name: str) -> None:
        """Record that an annotated video is incomplete, before it gets its name."""
        self._naming.leave_unfinished(name, self._unfinished.pop(name))

    def _claim(self, item: Item) -> None:
        """Claim a name before its new files appear, or after they have replaced others."""
        if not (self.is_due(item) or self.shows_more(item)):
            self._naming.claim(item.output, item.source_name)

    def is_due(self, item: Item) -> bool:
        return self._naming.is_due(item.output, item.source_name)

    def shows_more(self, item: Item) -> bool:
        return self._naming.shows_more(item.output, item.source_name)


class Replaced(Record):
    """Writes lines after the files of a picture have replaced others."""

    def __init__(
        self,
        naming: OutputNames,
        known: Sequence[NamedMedia],
        *,
        reopens: bool,
        at_once: int = 1,
    ) -> None:
        super().__init__(naming, known, at_once=at_once)
        self._reopens = reopens
        self._videos: dict[str, str] = {}  # sources by name; videos are complete only at the end

    def lacks(self, item: Item) -> None:
        """Return None: the other outputs know."""

    def finish(self) -> None:
        for name, source in self._videos.items():
            self._naming.claim(name, source, is_written=True)

    def _leave_unfinished(self, name: str) -> None:
        super()._leave_unfinished(name)
        self._videos.pop(name, None)

    def _claim(self, item: Item) -> None:
        if item.frame and (self.is_due(item) or self.shows_more(item)):
            self._videos[item.output] = item.source_name
        else:
            self._naming.claim(item.output, item.source_name, is_written=self._reopens)


class Reopened(Sink):
    """Records, before any other output changes, that the outputs of pictures will be replaced."""

    def __init__(self, naming: OutputNames, known: Sequence[NamedMedia]) -> None:
        self._naming = naming
        self._known = known

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        self._naming.reopen(self._known)
