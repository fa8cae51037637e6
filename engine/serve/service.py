"""Service: pictures of many clients through one detector, on one event loop, within limits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from engine.backends.cpu.workers import thread_count
from engine.detector import Detector, Outcome
from engine.errors import DeviceError
from engine.inputs import Batch, Prepared
from engine.serve.batcher import Batcher, Done, Job
from engine.serve.budget import Budget
from engine.serve.limits import Limits
from engine.serve.metrics import Metrics
from engine.serve.refusal import ClientLeftError, RefusedError
from engine.settings import Settings
from engine.vision.decode import opened
from engine.vision.image import Picture

Made = TypeVar("Made")
Answer: TypeAlias = "asyncio.Future[Found]"

# A picture that is read takes Pillow's bytes, its decoder's and ours; one that is drawn upon is
# copied twice more. The network's own size is that of three float32.
_BYTES_A_PIXEL = 12
_BYTES_A_DRAWN_PIXEL = 20
_BYTES_A_PIXEL_INSIDE = 12

_LEAST_THREADS = 2  # that read: one slow picture is not to hold up all others
_MOST_THREADS = 16  # more only stand in each other's way

_LONGEST_WAIT = 60  # seconds that a refused client is told to stay away at most
_SHARE_OF_LAST = 0.2  # that the newest run has in the mean of all


class Service:
    """`wait_seconds` is how long a picture waits for others at most, to be run with them."""

    def __init__(self, detector: Detector, limits: Limits, *, wait_seconds: float) -> None:
        self.detector = detector
        self.limits = limits
        self.metrics = Metrics()
        self.bodies = Budget(limits.memory_bytes // 4)
        self.pictures = Budget(limits.memory_bytes - self.bodies.size)
        self.visits = 0  # requests that are being answered
        self.places = 0  # pictures among them that are taken in
        self.is_draining = False
        self.failure = ""  # what the device said instead of giving answers
        self._seconds_a_picture = 0.0
        self._loop = asyncio.get_running_loop()
        threads = min(max(_LEAST_THREADS, thread_count()), _MOST_THREADS)
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="serve-read")
        # Of their own: readers may all be waiting for the memory of pictures that are to be drawn.
        self._writers = ThreadPoolExecutor(threads, thread_name_prefix="engine-write")
        self._batcher = Batcher(
            detector.run,
            self._deliver,
            most=detector.settings.batch,
            threads=detector.runs_at_once,
            wait_seconds=wait_seconds,
            in_powers=_has_recordings(detector),
        )

    @property
    def depth(self) -> int:
        """How many pictures wait for the network."""
        return self._batcher.depth

    def refuse_if_ending(self) -> None:
        if self.is_draining:
            raise RefusedError(503, "server: is about to end", retry_after=1, is_last=True)

    def refuse_if_full(self) -> None:
        if self.places >= self.limits.queue:
            seconds = math.ceil(self.places * self._seconds_a_picture)
            raise RefusedError(
                *(503, f"queue: is full with {self.places} pictures"),
                retry_after=min(max(1, seconds), _LONGEST_WAIT),
            )

    async def find(self, visit: Visit, settings: Settings, *, draws: bool) -> Found:
        """What is in the picture that a visit brought; raises its ImageError."""
        answer: Answer = self._loop.create_future()
        self._batcher.expect()
        self._readers.submit(self._read, visit, settings, answer, draws=draws)
        return await answer

    async def in_thread(self, make: Callable[[], Made]) -> Made:
        """What `make` makes; the event loop goes on meanwhile."""
        return await self._loop.run_in_executor(self._writers, make)

    def close(self) -> None:
        self._readers.shutdown()
        self._writers.shutdown()
        self._batcher.close()

    def _read(self, visit: Visit, settings: Settings, answer: Answer, *, draws: bool) -> None:
        """On a thread of a reader."""
        try:
            batch = self._prepare(visit, draws=draws)
        except Exception as error:
            self._batcher.forget()
            self._loop.call_soon_threadsafe(_settle, answer, error)
        else:
            visit.drop_body()
            self._batcher.put(Job(batch, settings, lambda: not visit.is_gone, answer))

    def _prepare(self, visit: Visit, *, draws: bool) -> Batch:
        """The picture, made ready as soon as there is room for it."""
        if visit.is_gone:
            raise ClientLeftError
        width, height = opened(visit.content, "picture").size
        if width * height > self.limits.pixels:
            most = f"{self.limits.pixels} pixels"
            raise RefusedError(413, f"picture: expected at most {most}, got {width} x {height}")
        room = width * height * (_BYTES_A_DRAWN_PIXEL if draws else _BYTES_A_PIXEL)
        room += math.prod(self.detector.size) * _BYTES_A_PIXEL_INSIDE
        if room > self.pictures.size:
            most = f"{self.pictures.size} bytes of memory"
            raise RefusedError(413, f"picture: expected to need at most {most}, got {room}")
        visit.wait_for_room(room)
        return self.detector.prepare(visit.content, max_pixels=self.limits.pixels)

    def _deliver(self, done: Done) -> None:
        """On a thread of the batcher."""
        self._loop.call_soon_threadsafe(self._take, done)

    def _take(self, done: Done) -> None:
        for job, outcome in zip(done.jobs, done.outcomes, strict=True):
            if outcome is None:
                _settle(job.answer, ClientLeftError())
            elif isinstance(outcome, Exception):
                _settle(job.answer, outcome)
                if isinstance(outcome, DeviceError):
                    self.failure = str(outcome)
            else:
                (prepared,) = job.batch.pictures
                assert isinstance(prepared, Prepared)
                waited = (done.began - job.since) * 1e3
                _settle(job.answer, Found(outcome, prepared.picture, waited))
                self.failure = ""
        if count := sum(each is not None for each in done.outcomes):
            self.metrics.add_run(count, done.seconds)
            newest = done.seconds / count
            self._seconds_a_picture += (newest - self._seconds_a_picture) * _SHARE_OF_LAST


def _settle(answer: Answer, found: Found | Exception) -> None:
    if answer.done():  # cancelled, by an end that waits for nobody
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)


class Visit:
    """What one request holds of a service, from its head to the end of its answer."""

    def __init__(self, service: Service) -> None:
        self.is_gone = False  # its client has left
        self.content = b""  # the encoded picture
        self._service = service
        self._body = 0
        self._room = 0
        self._places = 0
        service.visits += 1

    def take_body(self, count: int) -> bool:
        if not self._service.bodies.take(count):
            return False
        self._body += count
        return True

    def drop_body(self) -> None:
        self.content = b""
        self._service.bodies.give(self._body)
        self._body = 0

    def take_place(self) -> None:
        """Be one of the pictures that are taken in, or be refused."""
        self._service.refuse_if_full()
        self._service.places += 1
        self._places = 1

    def wait_for_room(self, count: int) -> None:
        """Blocks a thread until so many bytes are free for a picture."""
        self._service.pictures.wait_for(count)
        self._room = count

    def leave(self) -> None:
        """Give all of it back."""
        self.drop_body()
        self._service.pictures.give(self._room)
        self._service.places -= self._places
        self._service.visits -= 1


@dataclass(frozen=True, eq=False)
class Found:
    """What is in a picture, the picture as it was read, and how long it waited for a run."""

    outcome: Outcome
    picture: Picture
    milliseconds: float


def warm_up(detector: Detector) -> None:
    """Run what is slow the first time: a GPU records its runs, one for each number of pictures."""
    width, height = detector.size
    batch = detector.prepare(np.zeros((height, width, 3), np.uint8))
    most = detector.settings.batch
    powers = {1 << power for power in range(most.bit_length())}
    for size in sorted({most} | powers if _has_recordings(detector) else {1}):
        for _ in range(3):
            detector.run(Batch.joined([batch] * size))


def _has_recordings(detector: Detector) -> bool:
    return detector.runs_at_once > 1
