"""Options that say how pictures are read, and the pictures that a command's names stand for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import InputError

if TYPE_CHECKING:
    from engine.sources.item import Item
    from engine.sources.kinds import Place
    from engine.sources.opening import Pace

WHAT = (
    "pictures, folders, patterns, .txt lists, addresses, videos, a camera's number,"
    " - for names on stdin"
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
    reading.add_argument(
        "--max-frames", type=int, metavar="N", help="how many frames of a video at most"
    )
    reading.add_argument(
        "--fail-fast", action="store_true", help="stop at the first picture that cannot be read"
    )


@dataclass(frozen=True)
class Feed:
    """What a run reads; `total` is unknown for videos and for names on stdin."""

    places: Iterable[Place]
    pace: Pace
    total: int | None
    named: tuple[str, ...]  # by the user: lists, for instance
    found: tuple[Place, ...] = ()  # all of `places` that is known beforehand

    @property
    def known_files(self) -> tuple[str, ...]:
        return *self.named, *(place.name for place in self.found)

    @property
    def pictures(self) -> tuple[str, ...]:
        """The known files that are no videos."""
        return tuple(place.name for place in self.found if not place.is_moving)

    def items(self) -> Iterator[Item]:
        from engine.sources.opening import items

        return items(self.places, self.pace)


def feed(arguments: argparse.Namespace, names: list[str]) -> Feed:
    """Find the pictures; nothing is opened but folders and lists."""
    from engine.cli._stdin import lines
    from engine.sources import video
    from engine.sources.names import STDIN, places
    from engine.sources.opening import Pace

    if names.count(STDIN) > 1:
        raise InputError("-: standard input can be read only once")
    pace = Pace(arguments.stride, arguments.max_frames)
    if STDIN in names:
        from_stdin = places(names, recursive=arguments.recursive, lines=lines())
        return Feed(from_stdin, pace, None, tuple(each for each in names if each != STDIN))
    found = tuple(places(names, recursive=arguments.recursive))
    if not found:
        raise InputError("no picture named: the lists are empty")
    moving = [place for place in found if place.is_moving]
    if moving:
        video.require(moving[0].name)
    return Feed(found, pace, None if moving else len(found), tuple(names), found)
