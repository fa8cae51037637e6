"""Inference for many clients with one detector, within limits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, TypeAlias, TypeVar

import numpy as np

from engine.backends.cpu.workers import thread_count
from engine.detector import Detector
from engine.errors import DeviceError, ImageError
from engine.inputs import Batch, Prepared
from engine.picture_runs import Outcome
from engine.serve.batcher import Batcher, BatchResult, QueuedPicture
from engine.serve.live import LiveOptions, LiveSources
from engine.serve.memory_budget import (
    BodyMemory,
    BudgetClosedError,
    PictureMemory,
    Reservation,
)
from engine.serve.metrics import Metrics
from engine.serve.rejection import ClientDisconnectedError, RejectedError, spread_seconds
from engine.serve.remote_pictures import PictureFetcher
from engine.serve.server_limits import ServerLimits
from engine.settings import Settings
from engine.vision import decoding_memory
from engine.vision.decode_pool import DecodePool, Opened, usual_count
from engine.vision.image import Picture
from engine.vision.result import Result

Returned = TypeVar("Returned")
InferenceFuture: TypeAlias = "asyncio.Future[Inference]"
AnyInferenceFuture: TypeAlias = "InferenceFuture | concurrent.futures.Future[Inference]"

_BYTES_PER_DRAWN_PIXEL = 8  # drawing copies the pixels twice more
_BYTES_PER_INPUT_PIXEL = 12  # of the network's input: three float32
_BYTES_PER_FRAME_PIXEL = 8  # RGB, and as decoded: the frame that runs and the next one
_ANY_PIXELS = 1 << 62  # no limit: exceeding it has its own HTTP status here

_SMOOTHING = 0.2  # weight of the latest run in the moving average


class Service:
    """A detector, the threads that have pictures decoded, and an account of what requests hold.

    Methods run on the event loop unless they say otherwise. `decoders` are the decoding processes.
    `wait_seconds` is the maximum time that a batch waits for pictures being decoded.
    """

    def __init__(
        self,
        detector: Detector,
        limits: ServerLimits,
        decoders: DecodePool,
        *,
        wait_seconds: float,
        allow_urls: bool = False,
        live: LiveOptions | None = None,
    ) -> None:
        self.detector = detector
        self.decoders = decoders
        self.model_name = detector.name
        self.metrics = Metrics()
        self.body_memory = BodyMemory(limits.memory_bytes // 4, 2 * limits.queue)
        # clients with a longer body would be told to retry forever
        body_bytes = min(limits.body_bytes, self.body_memory.largest)
        self.limits = replace(limits, body_bytes=body_bytes)
        self.fetcher = PictureFetcher(body_bytes) if allow_urls else None
        self._input_bytes = _input_bytes(detector)
        picture_bytes = limits.memory_bytes - self.body_memory.size
        self.picture_memory = PictureMemory(picture_bytes, self._input_bytes)
        self.active_requests = 0
        self.accepted_pictures = 0  # pictures of active requests whose bodies were read
        self.reading: Counter[str] = Counter()  # by address: requests whose bodies are being read
        self.is_draining = False
        self.is_abandoned = False
        self.failure = ""  # the latest DeviceError, until a run succeeds
        self._seconds_per_picture = 0.0
        self._loop = asyncio.get_running_loop()
        threads = usual_count(thread_count())
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="serve-read")
        # Large pictures wait for each other, and leave one process to small ones.
        self._large_readers = ThreadPoolExecutor(
            max(1, decoders.count - 1), thread_name_prefix="serve-read-large"
        )
        # Other threads, because all readers may be blocked on memory that only a response frees.
        self._renderers = ThreadPoolExecutor(threads, thread_name_prefix="engine-write")
        self._batcher = Batcher(
            detector.run,
            self._deliver,
            max_batch=detector.settings.batch,
            threads=detector.runs_at_once,
            wait_seconds=wait_seconds,
            powers_of_two=_uses_cuda_graphs(detector),
        )
        self.live = LiveSources(self, live or LiveOptions())

    @property
    def depth(self) -> int:
        """The number of pictures that wait for the network."""
        return self._batcher.depth

    @property
    def is_ready(self) -> bool:
        return not (self.is_draining or self.failure)

    def reject_if_draining(self) -> None:
        if self.is_draining:
            raise shutting_down()

    def overload(self, count: int = 1) -> RejectedError | None:
        """Return why no `count` further pictures are accepted now, or None.

        As many bodies as the queue holds may be in transit in addition. With more, some would be
        sent in vain; with fewer, slow clients would keep others out.
        """
        waiting = self.accepted_pictures
        reading = self.reading.total()
        limit = self.limits.queue
        if waiting + count <= limit and waiting + reading < 2 * limit:
            return None
        what = f"with {waiting} pictures" if waiting else f"of {reading} bodies being read"
        return self._queue_is_full(what)

    def body_refusal(self, client: str) -> RejectedError | None:
        """Return why no further body from the address `client` is read now, or None.

        One address may have half of the bodies in transit: however slowly it sends them, others can
        fill the queue.
        """
        reading = self.reading[client]
        if reading >= self.limits.queue:
            return self._queue_is_full(f"of {reading} bodies being read from this address")
        return self.overload()

    def reject_if_full(self, count: int) -> None:
        if refusal := self.overload(count):
            raise refusal

    @contextmanager
    def reading_body(self, client: str) -> Iterator[None]:
        """Count a body from the address `client` as being read, or raise RejectedError."""
        if refusal := self.body_refusal(client):
            raise refusal
        self.reading[client] += 1
        try:
            yield
        finally:
            self.reading[client] -= 1
            if not self.reading[client]:
                del self.reading[client]

    def _queue_is_full(self, what: str) -> RejectedError:
        seconds = spread_seconds(self.accepted_pictures * self._seconds_per_picture)
        return RejectedError(503, f"queue: is full {what}", retry_after=seconds)

    async def infer(self, lease: PictureLease, settings: Settings, *, draws: bool) -> Inference:
        """Run the network on the picture of a request; raise ImageError if it cannot be read."""
        future: InferenceFuture = self._loop.create_future()
        self._batcher.expect()
        self._readers.submit(self._read, Reading(lease, settings.unread, future, draws=draws))
        inference = await future
        if not settings.read:
            return inference
        assert isinstance(inference.outcome, Result)
        read = partial(self.detector.read_codes, inference.picture, inference.outcome, settings)
        return replace(inference, outcome=await self.run_in_thread(read))

    def run_batch(
        self, batch: Batch, settings: Settings, *, is_wanted: Callable[[], bool]
    ) -> concurrent.futures.Future[Inference]:
        """Queue a prepared picture; any thread may call this and wait for the result."""
        future: concurrent.futures.Future[Inference] = concurrent.futures.Future()
        self._batcher.expect()
        self._batcher.submit(
            QueuedPicture(batch, settings, is_wanted, future, rows=len(batch.placed))
        )
        return future

    @contextmanager
    def reserve_frame(self, width: int, height: int, *, draws: bool) -> Iterator[None]:
        """Hold the memory of a frame of a live source; block the thread until it is free."""
        pixels = width * height
        if pixels > self.limits.pixels:
            reason = f"expected at most {self.limits.pixels} pixels, got {width} x {height}"
            raise ImageError(f"frame: {reason}")
        drawing = _BYTES_PER_DRAWN_PIXEL if draws else 0
        needed = pixels * (_BYTES_PER_FRAME_PIXEL + drawing) + self._input_bytes
        most = self.picture_memory.largest
        if needed > most:
            raise ImageError(f"frame: expected to need at most {most} bytes, got {needed}")
        reservation = self.picture_memory.reserve(needed)
        try:
            yield
        finally:
            reservation.release()

    async def run_in_thread(self, function: Callable[[], Returned]) -> Returned:
        return await self._loop.run_in_executor(self._renderers, function)

    def abandon(self) -> None:
        """Give up all requests, so that close() waits for no thread."""
        self.is_abandoned = True
        self.picture_memory.close()

    def close(self) -> None:
        for pool in (self._readers, self._large_readers, self._renderers):
            pool.shutdown(wait=not self.is_abandoned, cancel_futures=self.is_abandoned)
        self.live.close()
        if not self.is_abandoned:
            self._batcher.close()
        if self.fetcher:
            self.fetcher.close()

    def _read(self, reading: Reading) -> None:
        """Decode a picture and submit it to the batcher; runs on a thread of the readers.

        A large picture is only opened here.
        """
        lease = reading.lease
        try:
            batch = self._prepare(reading)
        except _IsLargeError as large:
            self._batcher.cancel_expected()
            reading.needed = large.needed
            try:
                self._large_readers.submit(self._read_large, reading)
            except RuntimeError:  # the service was closed without waiting for pictures
                self._loop.call_soon_threadsafe(_settle, reading.future, shutting_down())
        except Exception as error:
            self._batcher.cancel_expected()
            self._loop.call_soon_threadsafe(_settle, reading.future, error)
        else:
            is_wanted = partial(_is_connected, lease)
            self._batcher.submit(
                QueuedPicture(
                    *(batch, reading.settings, is_wanted, reading.future), rows=len(batch.placed)
                )
            )

    def _read_large(self, reading: Reading) -> None:
        """Do what _read() does for a picture known to be large, once there is memory for it."""
        try:
            reading.lease.reserve_picture(reading.needed)
        except Exception as error:
            self._loop.call_soon_threadsafe(_settle, reading.future, error)
        else:
            self._batcher.expect()
            self._read(reading)

    def _prepare(self, reading: Reading) -> Batch:
        """Have the picture decoded, and scale it; runs on a thread of the readers."""
        lease = reading.lease
        if lease.is_disconnected:
            raise ClientDisconnectedError
        content = lease.content
        least = decoding_memory.of_header(content) + self._input_bytes
        if not lease.reservation:
            self._check_needed(least)
            if not self.picture_memory.is_small(least):
                raise _IsLargeError(least)
            lease.reserve_picture(least)

        def decode(content: bytes, name: str, *, channels: int, **options: Any) -> Picture:
            options["max_pixels"] = _ANY_PIXELS

            def admit(opened: Opened) -> None:
                needed = max(least, self._needed(opened, draws=reading.draws))
                self._check_needed(needed)
                if not lease.try_resize_picture(needed):
                    raise _IsLargeError(needed)

            return self.decoders.read(content, name, channels=channels, admit=admit, **options)

        try:
            batch = self.detector.prepare(content, settings=reading.settings, decoder=decode)
        except _IsLargeError as large:
            lease.release()
            if not self.picture_memory.is_small(large.needed):
                raise
            lease.reserve_picture(large.needed)  # small, but too little memory was free
            batch = self.detector.prepare(content, settings=reading.settings, decoder=decode)
        (prepared,) = batch.pictures
        assert isinstance(prepared, Prepared)
        if prepared.rows > self.limits.tiles:
            limit = f"{self.limits.tiles} of a picture"
            raise RejectedError(413, f"tiles: expected at most {limit}, got {prepared.rows}")
        picture = prepared.picture
        drawing = math.prod(picture.size) * _BYTES_PER_DRAWN_PIXEL if reading.draws else 0
        lease.try_resize_picture(picture.pixels.nbytes + self._input_bytes + drawing)
        return batch

    def _needed(self, opened: Opened, *, draws: bool) -> int:
        """Return the bytes that a picture needs from decoding to response."""
        pixels = opened.width * opened.height
        if pixels > self.limits.pixels:
            got = f"{opened.width} x {opened.height}"
            raise RejectedError(
                413, f"picture: expected at most {self.limits.pixels} pixels, got {got}"
            )
        drawing = pixels * _BYTES_PER_DRAWN_PIXEL if draws else 0
        return opened.needed + drawing + self._input_bytes

    def _check_needed(self, needed: int) -> None:
        most = self.picture_memory.largest
        if needed > most:
            limit = f"{most} bytes of memory"
            raise RejectedError(413, f"picture: expected to need at most {limit}, got {needed}")

    def _deliver(self, result: BatchResult) -> None:
        """Pass a result to the event loop; runs on a thread of the batcher."""
        self._loop.call_soon_threadsafe(self._complete, result)

    def _complete(self, result: BatchResult) -> None:
        for queued, outcome in zip(result.pictures, result.outcomes, strict=True):
            if outcome is None:
                _settle(queued.context, ClientDisconnectedError())
            elif isinstance(outcome, Exception):
                _settle(queued.context, outcome)
                if isinstance(outcome, DeviceError):
                    self.failure = str(outcome)
            else:
                (prepared,) = queued.batch.pictures
                assert isinstance(prepared, Prepared)
                queue_ms = (result.started_at - queued.queued_at) * 1e3
                _settle(queued.context, Inference(outcome, prepared.picture, queue_ms))
                self.failure = ""
        if count := sum(outcome is not None for outcome in result.outcomes):
            self.metrics.add_run(count, result.seconds)
            latest = result.seconds / count
            self._seconds_per_picture += (latest - self._seconds_per_picture) * _SMOOTHING


class _IsLargeError(Exception):
    """The picture needs more memory than is held for it."""

    def __init__(self, needed: int) -> None:
        super().__init__()
        self.needed = needed


def shutting_down() -> RejectedError:
    """Return the error for a request that is abandoned at shutdown."""
    return RejectedError(503, "server: shutting down", retry_after=1, closes_connection=True)


def _is_connected(lease: PictureLease) -> bool:
    return not lease.is_disconnected


def _settle(future: AnyInferenceFuture, result: Inference | Exception) -> None:
    if future.done():  # cancelled by a forced exit
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


class RequestLease:
    """What one request holds of a service, from its head until its response is sent.

    `client` is the address from which it comes.
    """

    def __init__(self, service: Service, client: str) -> None:
        self.is_disconnected = False
        self.service = service
        self.client = client
        self._body_bytes = 0
        self._accepted_pictures = 0
        self._lock = Lock()  # pictures of one request are fetched and decoded on several threads
        self._is_released = False  # a timed-out fetch may end after the response
        service.active_requests += 1

    def try_reserve_body(self, count: int) -> bool:
        with self._lock:
            memory = self.service.body_memory
            if self._is_released or not memory.try_reserve(self.client, count, self._body_bytes):
                return False
            self._body_bytes += count
            return True

    def release_body(self) -> None:
        with self._lock:
            self.service.body_memory.release(self.client, self._body_bytes)
            self._body_bytes = 0

    def accept_pictures(self, count: int) -> None:
        """Count pictures as accepted, or raise RejectedError if the queue has no room for them."""
        total = self._accepted_pictures + count
        if total > self.service.limits.queue:
            limit = self.service.limits.queue
            raise RejectedError(413, f"pictures: expected at most {limit}, got {total}")
        self.service.reject_if_full(count)
        self.service.accepted_pictures += count
        self._accepted_pictures = total

    def release(self) -> None:
        with self._lock:
            self._is_released = True
        self.release_body()
        self.service.accepted_pictures -= self._accepted_pictures
        self.service.active_requests -= 1


class PictureLease:
    """What one picture of a request holds, until its result is serialized."""

    def __init__(self, request: RequestLease, content: bytes) -> None:
        self.content = content  # the encoded picture
        self._request = request
        self.reservation: Reservation | None = None

    @property
    def is_disconnected(self) -> bool:
        return self._request.is_disconnected

    def reserve_picture(self, count: int) -> None:
        """Block the thread until `count` bytes are free for the decoded picture."""
        try:
            self.reservation = self._request.service.picture_memory.reserve(count)
        except BudgetClosedError:
            raise shutting_down() from None

    def try_resize_picture(self, count: int) -> bool:
        """Change the picture's reservation to `count` bytes; return whether they were free."""
        assert self.reservation is not None
        return self.reservation.try_resize(count)

    def release(self) -> None:
        if self.reservation is not None:
            self.reservation.release()
            self.reservation = None


@dataclass(eq=False)
class Reading:
    """A picture on its way to the batcher; `needed` is set once it is known to be large."""

    lease: PictureLease
    settings: Settings
    future: InferenceFuture
    draws: bool
    needed: int = 0


@dataclass(frozen=True, eq=False)
class Inference:
    """The outcome of one picture, the decoded picture, and the time it was queued."""

    outcome: Outcome
    picture: Picture
    queue_ms: float


def useless_memory(detector: Detector) -> int:
    """Return the largest --memory in bytes with which only the network's input fits, no picture."""
    return _input_bytes(detector) * 8 // 3  # half of the pictures' part, which is three quarters


def _input_bytes(detector: Detector) -> int:
    return math.prod(detector.size) * _BYTES_PER_INPUT_PIXEL


def warm_up(detector: Detector) -> None:
    """Run every batch size that will occur, to capture CUDA graphs before serving."""
    width, height = detector.size
    batch = detector.prepare(np.zeros((height, width, 3), np.uint8))
    max_batch = detector.settings.batch
    powers = {1 << power for power in range(max_batch.bit_length())}
    for size in sorted({max_batch} | powers if _uses_cuda_graphs(detector) else {1}):
        for _ in range(3):
            detector.run(Batch.joined([batch] * size))


def _uses_cuda_graphs(detector: Detector) -> bool:
    return detector.runs_at_once > 1
