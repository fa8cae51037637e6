"""Read the pictures of media, each opened only when it is needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from threading import Event

from engine.arguments import whole
from engine.concurrency.thread_pool import ThreadPool
from engine.errors import ImageError, InputError
from engine.files.naming import shown
from engine.files.regular import open_regular
from engine.sources import archive, video
from engine.sources.card_decoder import CardDecoder
from engine.sources.item import Item
from engine.sources.media import Media, MediaKind
from engine.sources.newest import NewestOfEach
from engine.sources.remote_picture import RemotePicture
from engine.sources.video import DecodedFrame
from engine.vision.frame import Frame

_TOGETHER = 4  # frames handed over at a time by the thread of each video


@dataclass(frozen=True)
class FrameSelection:
    """The frames of a video to read: every `stride`-th one, and at most `max_frames` of these."""

    stride: int = 1
    max_frames: int | None = None
    reconnect: int | None = None  # how often a lost stream is reopened; see live_frames()
    card: CardDecoder | None = None  # decodes what it can, in place of the CPU
    at_once: int = 1  # number of videos of a list that are interleaved
    may_be_endless: bool = True  # False refuses cameras and live streams

    def __post_init__(self) -> None:
        for name in ("stride", "max_frames", "at_once"):
            value = getattr(self, name)
            if value is not None:
                whole(name, value)
        if self.reconnect is not None and self.reconnect < 0:
            raise InputError(f"reconnect: expected 0 or more, got {self.reconnect}")

    def reads_together(self, kind: MediaKind) -> bool:
        """Return whether adjacent sources of a kind are read concurrently."""
        return kind is MediaKind.LIVE or (kind is MediaKind.VIDEO and self.at_once > 1)

    def of(self, decoded: Iterator[DecodedFrame]) -> Generator[DecodedFrame]:
        return (each for each in decoded if each.number % self.stride == 0)


def read_items(
    media: Iterable[Media],
    selection: FrameSelection,
    *,
    is_untrusted: bool = False,
    stopped: Event | None = None,
) -> Iterator[Item]:
    """Yield the pictures of all media in order; one that cannot be opened yields its error.

    Untrusted videos are such errors, because FFmpeg would decode them in this process. `stopped`
    ends the reading of cameras and streams, and downloads.
    """
    for each in media:
        if each.kind is MediaKind.BROKEN:
            yield Item(each.name, ImageError(each.problem), is_picture=False)
        elif each.kind is MediaKind.URL:
            picture = RemotePicture(each.address, stopped=stopped)
            yield Item(each.name, picture)  # type: ignore[arg-type]
        elif each.kind is MediaKind.ARCHIVE:
            yield from _read_archive(each.name)
        elif each.has_frames and is_untrusted:
            reason = "expected a picture, got a video, which is not decoded as untrusted"
            yield Item(each.name, ImageError(f"{shown(each.name)}: {reason}"), is_picture=False)
        elif each.kind is MediaKind.LIVE:
            for _, item in read_live([each], selection, stopped=stopped):
                yield item
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
                yield Item(f"{name}#{path}", source, output=archive.output_of(path), member=path)
    except ImageError as error:
        yield Item(name, error, is_picture=False)
        return
    except archive.ERRORS as error:
        problem = f"{shown(name)}: archive: cannot be read: {error}"
        yield Item(name, ImageError(problem), is_picture=False)
        return
    if not count:
        yield Item(name, ImageError(f"{shown(name)}: archive: has no pictures"), is_picture=False)


def _read_frames(media: Media, selection: FrameSelection) -> Iterator[Item]:
    try:
        decoded = video.frames(media.address, card=selection.card)
        with closing(selection.of(decoded)) as wanted:
            for each in islice(wanted, selection.max_frames):
                yield _item_of(media, each)
    except ImageError as error:
        yield Item(media.name, error, is_picture=False)


def read_together(
    media: Sequence[Media], selection: FrameSelection, *, stopped: Event | None = None
) -> Iterator[tuple[int, Item]]:
    """Yield (number of the source, its next frame) of several videos, or of live sources."""
    if media[0].is_live:
        return read_live(media, selection, stopped=stopped)
    return read_in_turn(media, selection)


def read_in_turn(media: Sequence[Media], selection: FrameSelection) -> Iterator[tuple[int, Item]]:
    """Yield (number of the video, its next frame); `selection.at_once` videos are interleaved.

    Each is decoded on a thread of its own, a few frames ahead. When one ends, the next begins.
    """
    waiting = enumerate(media)
    turns: deque[tuple[int, ThreadPool, Iterator[Item]]] = deque()
    with ExitStack() as stack:

        def begin(thread: ThreadPool) -> None:
            for number, each in islice(waiting, 1):
                turns.append((number, thread, _ahead(_read_frames(each, selection), thread)))

        for _ in range(min(selection.at_once, len(media))):
            begin(stack.enter_context(closing(ThreadPool(1, "video-read"))))
        while turns:
            number, thread, frames = turns.popleft()
            item = next(frames, None)
            if item is None:
                begin(thread)
            else:
                turns.append((number, thread, frames))
                yield number, item


def _ahead(items: Iterator[Item], thread: ThreadPool) -> Iterator[Item]:
    """Read items on a thread, a few at a time, because handing over single ones is slow."""

    def read() -> Future[list[Item]]:
        return thread.submit(lambda: list(islice(items, _TOGETHER)))

    reading = deque([read(), read()])

    def taken() -> Iterator[Item]:
        while found := reading.popleft().result():
            reading.append(read())
            yield from found

    return taken()


def read_live(
    media: Sequence[Media], selection: FrameSelection, *, stopped: Event | None = None
) -> Iterator[tuple[int, Item]]:
    """Yield (number of the source, its newest frame) of interleaved cameras and streams.

    A source that ends or cannot be read yields its error. `stopped` ends all of them.
    """
    ended = Event()  # not `stopped`, because other sources may follow
    counts = [0] * len(media)
    sources = [_live_frames(each, selection, ended) for each in media]
    with closing(NewestOfEach(sources, stopped=stopped, ended=ended)) as live:
        for number, found in live:
            if isinstance(found, ImageError):
                yield number, Item(media[number].name, found, is_picture=False)
                continue
            counts[number] += 1
            try:
                item = _item_of(media[number], found)
            except ImageError as error:  # one frame must not end any source
                item = Item(media[number].name, error, is_picture=False)
            yield number, item
            if counts[number] == selection.max_frames:
                live.end(number)


def _live_frames(
    media: Media, selection: FrameSelection, ended: Event
) -> Iterator[DecodedFrame | ImageError]:
    """Yield frames, and at the end the error, which must not end other sources."""
    try:
        decoded = video.live_frames(
            media.address, reconnect=selection.reconnect, stopped=ended, card=selection.card
        )
        yield from selection.of(decoded)
    except ImageError as error:
        yield error


def _item_of(media: Media, decoded: DecodedFrame) -> Item:
    place = (decoded.number, decoded.seconds, decoded.rate, decoded.pixel_aspect)
    frame = Frame(media.name, *place)
    picture = decoded.picture(media.name).of_frame(frame)
    return Item(f"{media.name}#{decoded.number}", picture, frame)
