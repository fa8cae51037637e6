"""Options that say how pictures are read, and the pictures that a command's arguments name."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import InputError

if TYPE_CHECKING:
    from engine.sources.item import Item
    from engine.sources.media import Media
    from engine.sources.reader import FrameSelection

WHAT = (
    "pictures, folders, patterns, .txt lists, URLs, videos, a camera's number,"
    " or - for names on stdin"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    reading = parser.add_argument_group("reading")
    reading.add_argument("--recursive", action="store_true", help="look into folders of folders")
    reading.add_argument(
        "--workers", type=int, default=2, metavar="N", help="threads that read pictures (2)"
    )
    reading.add_argument(
        "--stride", type=int, default=1, metavar="N", help="every N-th frame of a video (1)"
    )
    reading.add_argument("--max-frames", type=int, metavar="N", help="at most N frames of a video")
    reading.add_argument(
        "--max-pixels", type=int, metavar="N", help="pixels of a picture (89 million)"
    )
    reading.add_argument(
        "--fail-fast", action="store_true", help="stop at the first picture that cannot be read"
    )


@dataclass(frozen=True)
class Feed:
    """The pictures that a run reads; `total` is None for videos and for names on stdin."""

    media: Iterable[Media]
    selection: FrameSelection
    total: int | None
    names: tuple[str, ...]  # as the user gave them, for example lists
    found: tuple[Media, ...] = ()  # all media that are known in advance

    @property
    def known_files(self) -> tuple[str, ...]:
        return *self.names, *(each.name for each in self.found)

    @property
    def pictures(self) -> tuple[str, ...]:
        """Return the known files that are not videos."""
        return tuple(each.name for each in self.found if not each.has_frames)

    def items(self) -> Iterator[Item]:
        from engine.sources.reader import read_items

        return read_items(self.media, self.selection)


def feed(arguments: argparse.Namespace, names: list[str]) -> Feed:
    """Find the pictures; only folders and lists are opened."""
    from engine.cli._stdin import lines
    from engine.sources import video
    from engine.sources.expand import STDIN, expand
    from engine.sources.reader import FrameSelection

    if names.count(STDIN) > 1:
        raise InputError("-: standard input can be read only once")
    selection = FrameSelection(arguments.stride, arguments.max_frames)
    if STDIN in names:
        from_stdin = expand(names, recursive=arguments.recursive, lines=lines())
        return Feed(from_stdin, selection, None, tuple(each for each in names if each != STDIN))
    found = tuple(expand(names, recursive=arguments.recursive))
    if not found:
        raise InputError("no picture named: the lists are empty")
    videos = [each for each in found if each.has_frames]
    if videos:
        video.require_pyav(videos[0].name)
    return Feed(found, selection, None if videos else len(found), tuple(names), found)
