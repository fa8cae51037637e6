"""Read the pictures of media, each opened only when it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from engine.errors import ImageError, InputError
from engine.files.naming import shown
from engine.files.regular import open_regular
from engine.sources import archive, video
from engine.sources.item import Frame, Item
from engine.sources.media import Media, MediaKind
from engine.sources.newest import newest
from engine.sources.remote_picture import RemotePicture
from engine.vision.image import Picture


@dataclass(frozen=True)
class FrameSelection:
    """The frames of a video to read: every `stride`-th one, and at most `max_frames` of these."""

    stride: int = 1
    max_frames: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("stride", self.stride), ("max_frames", self.max_frames)):
            if value is not None and value < 1:
                raise InputError(f"{name}: expected 1 or more, got {value}")


def read_items(
    media: Iterable[Media], selection: FrameSelection, *, is_untrusted: bool = False
) -> Iterator[Item]:
    """Yield the pictures of all media in order; one that cannot be opened yields its error.

    Untrusted videos are such errors, because FFmpeg would decode them in this process.
    """
    for each in media:
        if each.kind is MediaKind.BROKEN:
            yield Item(each.name, ImageError(each.problem))
        elif each.kind is MediaKind.URL:
            yield Item(each.name, RemotePicture(each.name))  # type: ignore[arg-type]
        elif each.kind is MediaKind.ARCHIVE:
            yield from _read_archive(each.name)
        elif each.has_frames and is_untrusted:
            reason = "expected a picture, got a video, which is not decoded as untrusted"
            yield Item(each.name, ImageError(f"{shown(each.name)}: {reason}"))
        elif each.has_frames:
            yield from _read_frames(each, selection)
        else:
            yield Item(each.name, each.name)


def _read_archive(name: str) -> Iterator[Item]:
    count = 0
    try:
        with open_regular(name, ImageError) as file:
            for path, source in archive.read(name, file):
                count += 1
                yield Item(f"{name}#{path}", source, output=archive.output_of(path))
    except ImageError as error:
        yield Item(name, error)
        return
    except archive.ERRORS as error:
        yield Item(name, ImageError(f"{shown(name)}: archive: cannot be read: {error}"))
        return
    if not count:
        yield Item(name, ImageError(f"{shown(name)}: archive: has no pictures"))


def _read_frames(media: Media, selection: FrameSelection) -> Iterator[Item]:
    is_live = media.kind is MediaKind.LIVE
    decoded = video.live_frames(media.name) if is_live else video.frames(media.name)
    wanted = (each for each in decoded if each.number % selection.stride == 0)
    try:
        with closing(newest(wanted) if is_live else wanted) as selected:
            for each in islice(selected, selection.max_frames):
                frame = Frame(media.name, each.number, each.seconds, each.rate)
                name = f"{media.name}#{each.number}"
                yield Item(name, Picture(each.pixels(), media.name), frame)
    except ImageError as error:
        yield Item(media.name, error)
