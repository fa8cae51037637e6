"""From places to pictures: each is opened when its turn comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from engine.errors import ImageError, InputError
from engine.sources import video
from engine.sources.address import RemotePicture
from engine.sources.item import Frame, Item
from engine.sources.kinds import Kind, Place
from engine.sources.newest import newest
from engine.vision.image import Picture


@dataclass(frozen=True)
class Pace:
    """Which frames of a video are looked at: each `stride`-th, and `max_frames` of those."""

    stride: int = 1
    max_frames: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("stride", self.stride), ("max_frames", self.max_frames)):
            if value is not None and value < 1:
                raise InputError(f"{name}: expected 1 or more, got {value}")


def items(places: Iterable[Place], pace: Pace) -> Iterator[Item]:
    """The pictures of all places, in order; one that cannot be opened gives its error."""
    for place in places:
        if place.kind is Kind.BROKEN:
            yield Item(place.name, ImageError(place.problem))
        elif place.kind is Kind.ADDRESS:
            yield Item(place.name, RemotePicture(place.name))  # type: ignore[arg-type]
        elif place.is_moving:
            yield from _of_video(place, pace)
        else:
            yield Item(place.name, place.name)


def _of_video(place: Place, pace: Pace) -> Iterator[Item]:
    """The frames; a live source's newest one each time."""
    is_live = place.kind is Kind.LIVE
    decoded = video.live_frames(place.name) if is_live else video.frames(place.name)
    wanted = (each for each in decoded if each.number % pace.stride == 0)
    try:
        with closing(newest(wanted) if is_live else wanted) as looked_at:
            for each in islice(looked_at, pace.max_frames):
                frame = Frame(place.name, each.number, each.seconds, each.rate)
                name = f"{place.name}#{each.number}"
                yield Item(name, Picture(each.pixels(), place.name), frame)
    except ImageError as error:
        yield Item(place.name, error)
