"""Cameras, streams and videos that the server reads all the time, and their viewers.

Each source has two threads: one keeps the newest frame, the other runs the network on it and
encodes the result. A source has at most one frame in the queue of the network, so that sources
alternate with each other and with requests. Parts are encoded once for all viewers, and only if
there are any.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import logging
import math
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from engine.concurrency.cached_property import cached_property
from engine.errors import EngineError, ImageError, InputError
from engine.files.naming import shown
from engine.serve.memory_budget import BudgetClosedError, PictureMemory
from engine.serve.rejection import RejectedError
from engine.sources import video
from engine.sources.media import MediaKind, is_camera, is_url, media_of
from engine.sources.newest import NewestOfEach
from engine.sources.video import DecodedFrame
from engine.track import Scene, ScenePlan
from engine.vision import serialize
from engine.vision.image import Picture
from engine.vision.result import Result

if TYPE_CHECKING:
    from engine.serve.service import Service

_log = logging.getLogger("engine")

MOST_VIEWERS = 64  # total for all sources
_RATE_SECONDS = 5.0  # the frame rate is averaged over this time
_PAUSE_SECONDS = 1.0  # after a frame that failed
_WARNING_SECONDS = 60.0  # between two warnings about frames that overflow the network
_JOIN_SECONDS = 0.8
_JPEG_QUALITY = 80


@dataclass(frozen=True)
class LiveOptions:
    """The sources named by the operator, and what is tracked and counted in each."""

    names: Sequence[str] = ()
    plans: Sequence[ScenePlan] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            self._check(name)

    @property
    def titles(self) -> list[str]:
        return list(map(shown, self.names))

    def _check(self, name: str) -> None:
        media = media_of(name)
        if media.kind is MediaKind.BROKEN:
            raise InputError(f"--source {media.problem}")
        if not (is_camera(name) or is_url(name)):
            if media.kind is not MediaKind.VIDEO:
                raise InputError(f"--source {shown(name)}: expected a camera, a stream or a video")
            if not os.path.exists(name):  # noqa: PTH110
                raise InputError(f"--source {shown(name)}: cannot be read: no such file")
        video.require_pyav(name)


@dataclass(frozen=True, eq=False)
class SeenFrame:
    """A frame and its result."""

    source: int
    decoded: DecodedFrame
    arrived_at: float  # seconds since 1970
    picture: Picture
    result: Result

    @cached_property
    def jpeg(self) -> bytes:
        """The annotated frame as JPEG, encoded once for everything that sends it."""
        return jpeg(self)


def json_line(seen: SeenFrame) -> bytes:
    entry = seen.result.to_dict() | {
        "source": seen.source,
        "frame": seen.decoded.number,
        "seconds": round(seen.decoded.seconds, 6),
        "time": round(seen.arrived_at, 3),
    }
    return serialize.json_text(entry).encode() + b"\n"


def jpeg(seen: SeenFrame) -> bytes:
    buffer = io.BytesIO()
    seen.result.plot(seen.picture).save(buffer, "JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()


Encoder = Callable[[SeenFrame], bytes]


class Viewer:
    """A client of a source, which gets the newest part, encoded by `encode`, when it is ready."""

    def __init__(self, encode: Encoder) -> None:
        self.encode = encode
        self._part: bytes | None = None
        self._is_over = False
        self._changed = asyncio.Event()

    async def next(self) -> bytes | None:
        """Wait for a new part; return None at the end."""
        while self._part is None and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        part, self._part = self._part, None
        return None if self._is_over else part

    async def parts(self, memory: PictureMemory) -> AsyncGenerator[bytes]:
        """Yield parts that fit into `memory`, where each counts until the next is requested."""
        while (part := await self.next()) is not None:
            if memory.change(True, len(part)):
                try:
                    yield part
                finally:
                    memory.change(True, -len(part))

    def offer(self, part: bytes) -> None:
        self._part = part
        self._changed.set()

    def end(self) -> None:
        self._is_over = True
        self._changed.set()


class LiveSource:
    """A source, its state and its viewers. All but the threads' methods run on the event loop."""

    def __init__(self, number: int, name: str, service: Service, plan: ScenePlan | None) -> None:
        self.number = number
        self.title = shown(name)
        self.frames = 0  # frames processed by the network
        self.received = 0
        self.counts: Mapping[str, Any] | None = None  # counts of lines and zones
        self.viewers: set[Viewer] = set()
        self._name = name
        self._service = service
        self._plan = plan
        self._settings = service.detector.settings
        if plan:  # the tracker needs low-scoring boxes
            self._settings = replace(self._settings, threshold=plan.low)
        self._scene: Scene | None = None
        self._size: tuple[int, int] | None = None
        self._lost: str | None = None  # why there is no frame
        self._failure: str | None = None  # why the latest frame has no result, or no boxes
        self._warned_at = -math.inf  # last warning about an overflow
        self._times: deque[float] = deque(maxlen=1000)
        self._encoders: frozenset[Encoder] = frozenset()
        self._stopped = Event()
        self._running: concurrent.futures.Future[Any] | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._work, name=f"serve-live-{number}", daemon=True)
        self._thread.start()

    @property
    def is_live(self) -> bool:
        return bool(self.frames) and not (self._lost or self._failure)

    def to_dict(self) -> dict[str, Any]:
        now = time.monotonic()
        recent = [each for each in self._times if now - each < _RATE_SECONDS]
        rate = (len(recent) - 1) / (now - recent[0]) if len(recent) > 1 else 0.0
        lost = "lost" if self._lost else "failing" if self._failure else None
        width, height = self._size or (None, None)
        return {
            "source": self.number,
            "name": self.title,
            "state": lost or ("live" if self.frames else "opening"),
            "error": self._lost or self._failure,
            "frames": self.frames,
            "received": self.received,
            "fps": round(rate, 2),
            "width": width,
            "height": height,
            "clients": len(self.viewers),
            **({} if self.counts is None else {"counts": self.counts}),
            "mjpeg": f"/sources/{self.number}/mjpeg",
            "jsonl": f"/sources/{self.number}/jsonl",
        }

    def add(self, viewer: Viewer) -> None:
        self.viewers.add(viewer)
        self._choose_encoders()

    def remove(self, viewer: Viewer) -> None:
        self.viewers.discard(viewer)
        self._choose_encoders()

    def _choose_encoders(self) -> None:
        self._encoders = frozenset(each.encode for each in self.viewers)

    def stop(self) -> None:
        self._stopped.set()
        if running := self._running:
            running.cancel()

    def join(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))

    def _offer(
        self, size: tuple[int, int], parts: dict[Encoder, bytes], failure: str | None
    ) -> None:
        self.frames += 1
        self._size = size
        self._failure = failure
        self._times.append(time.monotonic())
        for viewer in self.viewers:
            if part := parts.get(viewer.encode):
                viewer.offer(part)

    # ------------------------------------------------------------ on the threads of the source

    def _work(self) -> None:
        live = NewestOfEach([self._frames()], stopped=self._stopped)
        try:
            for _, (decoded, arrived_at) in live:
                try:
                    self._process(decoded, arrived_at)
                except (BudgetClosedError, concurrent.futures.CancelledError):
                    return
                except EngineError as error:
                    self._fail(str(error))
                except Exception as error:  # no error may end a source
                    self._fail(f"internal error: {type(error).__name__}")
                if self._stopped.is_set():
                    return
        finally:
            live.close(seconds=0)

    def _frames(self) -> Iterator[tuple[DecodedFrame, float]]:
        options: dict[str, Any] = {
            "stopped": self._stopped,
            "on_lost": self._lose,
            "card": self._service.detector.card_decoder,
        }
        if media_of(self._name).kind is MediaKind.VIDEO:
            frames = video.played_frames(self._name, **options)
        else:
            frames = video.live_frames(self._name, reconnect=math.inf, **options)
        for decoded in frames:
            self._lost = None
            self.received = decoded.number + 1
            yield decoded, time.time()

    def _lose(self, error: ImageError) -> None:
        self._lost = str(error)

    def _fail(self, reason: str) -> None:
        if reason != self._failure and not self._stopped.is_set():
            _log.warning("%s: %s", self.title, reason)
        self._failure = reason
        self._stopped.wait(_PAUSE_SECONDS)

    def _process(self, decoded: DecodedFrame, arrived_at: float) -> None:
        encoders = self._encoders
        size = decoded.frame.width, decoded.frame.height
        with self._service.reserve_frame(*size, draws=bool(encoders)):
            picture = decoded.picture(self.title)
            failure = None
            try:
                result = self._run(picture)
            except ImageError as error:
                if error.result is None:
                    raise
                result, failure = error.result, str(error)
                self._warn_of_overflow(failure)
            if self._plan:
                result = self._follow(self._plan, result, decoded)
            seen = SeenFrame(self.number, decoded, arrived_at, picture, result)
            parts = {encode: encode(seen) for encode in encoders}
        with suppress(RuntimeError):  # the loop is closed at shutdown
            self._loop.call_soon_threadsafe(self._offer, picture.size, parts, failure)

    def _warn_of_overflow(self, reason: str) -> None:
        """Log an error that names the source, but not for every one of many similar frames."""
        now = time.monotonic()
        if now - self._warned_at >= _WARNING_SECONDS:
            self._warned_at = now
            _log.warning("%s", reason)

    def _run(self, picture: Picture) -> Result:
        detector, settings = self._service.detector, self._settings
        batch = detector.prepare(picture, settings=settings)
        self._running = self._service.run_batch(
            batch, settings.unread, is_wanted=lambda: not self._stopped.is_set()
        )
        if self._stopped.is_set():
            self._running.cancel()
        outcome = self._running.result().outcome
        assert isinstance(outcome, Result)
        return detector.read_codes(picture, outcome, settings) if settings.read else outcome

    def _follow(self, plan: ScenePlan, result: Result, decoded: DecodedFrame) -> Result:
        if self._scene is None:
            self._scene = plan.scene(float(decoded.rate))
        followed = self._scene.follow(result, seconds=decoded.seconds)
        self.counts = followed.counts
        return followed


class LiveSources:
    """All sources of a server."""

    def __init__(self, service: Service, options: LiveOptions) -> None:
        self._sources = [
            LiveSource(number, name, service, plan)
            for number, (name, plan) in enumerate(zip_longest(options.names, options.plans))
        ]
        self._is_over = False

    def __iter__(self) -> Iterator[LiveSource]:
        return iter(self._sources)

    def find(self, number: str) -> LiveSource:
        """Return the source with the number given in a URL."""
        known = {str(each.number): each for each in self._sources}
        if number not in known:
            expected = f"0 to {len(known) - 1}" if known else "a server with --source"
            raise RejectedError(404, f"source: expected {expected}, got {shown(number[:20])}")
        return known[number]

    @contextmanager
    def viewing(self, source: LiveSource, encode: Encoder) -> Iterator[Viewer]:
        """Add a viewer to a source, or raise RejectedError if there are too many."""
        if sum(len(each.viewers) for each in self._sources) >= MOST_VIEWERS:
            reason = f"sources: expected at most {MOST_VIEWERS} clients at once"
            raise RejectedError(503, reason, retry_after=5)
        viewer = Viewer(encode)
        if self._is_over:
            viewer.end()
        source.add(viewer)
        try:
            yield viewer
        finally:
            source.remove(viewer)

    def end_viewers(self) -> None:
        """End the responses of all present and future viewers."""
        self._is_over = True
        for source in self._sources:
            for viewer in source.viewers:
                viewer.end()

    def close(self) -> None:
        """Stop all sources, without waiting for a silent camera."""
        for source in self._sources:
            source.stop()
        deadline = time.monotonic() + _JOIN_SECONDS
        for source in self._sources:
            source.join(deadline - time.monotonic())
