"""Decode many pictures at a time in processes, whose Python code shares no GIL.

Pillow decodes without the GIL, but the Python code around it holds the GIL for so long that more
than four threads of one process gain little. The pixels are returned in shared memory.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FuturesTimeoutError
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple
from weakref import finalize

from engine.arrays import Array
from engine.concurrency import fork_safety, thread_cache
from engine.concurrency.cores import usable_cores
from engine.concurrency.thread_cache import CachedThread
from engine.concurrency.thread_pool import in_every_group
from engine.errors import EngineError
from engine.files.stamp import Stamp
from engine.vision import decode_process, picture_limits
from engine.vision.batch_channel import (
    BatchChannel,
    Decoded,
    Entry,
    Following,
    Job,
    LeftEncoded,
    SourceOf,
)
from engine.vision.image import Picture, path_of
from engine.vision.plain_jpeg import PlainJpeg, PlainPicture
from engine.vision.shared_pixels import NoSegmentError, Pinning, Segment, Segments

IS_POSSIBLE = hasattr(os, "memfd_create") and hasattr(socket, "send_fds")
LEAST_THREADS = 4  # fewer threads are as fast without processes
WORTHWHILE = 100  # pictures; decoding them takes as long as starting the processes
_PARTS = 4  # per batch, for as many processes
_LEAST_PART = 4  # pictures per part
_OWN_FILES = ("/dev/", "/proc/")  # names that differ in meaning between processes
_START_SECONDS = 60.0
_PATIENCE_SECONDS = 2.0  # how long a thread waits for processes to start
_IDLE_SECONDS = 60.0
_MOST_AHEAD = 256  # sources per part, so that a connection's buffer holds the answer

_log = logging.getLogger("engine")


class Reading(NamedTuple):
    """How a stream reads its pictures."""

    processes: int
    copies: bool  # whether pixels outlive the batch, and must not keep its memory


class _Options(NamedTuple):
    """The options of decoding, in the order of a Job."""

    channels: int
    orient: bool
    max_pixels: int
    lenient: bool
    leaves_plain: bool


class BatchDecoder:
    """Processes shared by any number of threads; they start once a stream is long enough.

    After a minute without pictures they end. With `pinning` pixels lie in pinned memory.
    """

    def __init__(self, pinning: Pinning | None = None) -> None:
        self._pinning = pinning
        self._lock = fork_safety.lock(outer=True)
        self._is_closed = False
        self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._seen = 0  # pictures so far
        self._team = _Team(self._pinning)
        self._finalizer = finalize(self, _end, self._team, self._owner)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the memory for pixels until the end of a stream."""
        segments = self._team.segments
        segments.hold()
        try:
            yield
        finally:
            segments.release()

    def read(
        self,
        sources: Sequence[Any],
        *,
        how: Reading,
        channels: int,
        orient: bool,
        max_pixels: int | None,
        lenient: bool,
        leaves_plain: bool = False,
    ) -> list[tuple[Any, float]]:
        """Return the sources, with encoded ones decoded to Pictures, and the milliseconds for each.

        Sources that no process decodes are returned unchanged: image.read() gives their picture or
        error. With `leaves_plain`, ordinary JPEGs become PlainPictures, to be decoded elsewhere.
        """
        found = [(each, 0.0) for each in sources]
        encoded = [number for number, each in enumerate(sources) if _is_encoded(each)]
        if not encoded or not self._is_worthwhile(how.processes, len(encoded)):
            return found
        most = picture_limits.PIXELS if max_pixels is None else max_pixels
        options = _Options(channels, orient, most, lenient, leaves_plain)
        pending: deque[tuple[list[int], Future[_Answer]]] = deque()

        def submit(numbers: list[int]) -> None:
            given = [sources[number] for number in numbers]
            pending.append((numbers, self._team.submit(given, options)))

        parts = 1 if leaves_plain else _PARTS  # reading alone takes little time
        size = max(_LEAST_PART, -(-len(encoded) // parts))
        for first in range(0, len(encoded), size):
            submit(encoded[first : first + size])
        while pending:
            numbers, future = pending.popleft()
            entries, memory = self._team.wait(future)
            address = 0 if memory is None else memory.__array_interface__["data"][0]
            for number, entry in zip(numbers, entries, strict=False):
                if isinstance(entry, LeftEncoded):
                    plain = _plain_picture_of(entry, memory, address, sources[number])
                    found[number] = plain, entry.milliseconds
                elif entry is not None:
                    picture = _picture_of(entry, memory, sources[number], copies=how.copies)
                    found[number] = picture, entry.milliseconds
            if 0 < len(entries) < len(numbers):  # the others did not fit into the segment
                submit(numbers[len(entries) :])
        return found

    def close(self) -> None:
        """End all processes; waiting threads decode by themselves."""
        with self._lock:
            self._is_closed = True
        self._finalizer()

    def _is_worthwhile(self, wanted: int, new: int) -> bool:
        """Count pictures, start processes once worthwhile, and return whether there are any."""
        with self._lock:
            if self._owner != os.getpid():  # after a fork, they belong to the parent
                self._finalizer.detach()
                self._team.forget()
                self._reset()
            self._seen += new
            team = self._team
            missing = min(wanted, usable_cores()) - team.members
            if missing > 0 and self._seen > WORTHWHILE and not self._is_closed:
                team.start(missing)
            return team.members > 0


class _Answer(NamedTuple):
    """Entries for the first sources of a part (at least one), and all their pixels.

    Without a process there are no entries.
    """

    entries: Sequence[Entry] = ()
    pixels: Array | None = None


class _Part(NamedTuple):
    """Some sources of a batch, which one process decodes."""

    sources: Sequence[Any]
    options: _Options
    answer: Future[_Answer]


class _Team:
    """The processes, each with a thread that hands it one part after another.

    Parts are processed in the order of submission, so that batches are completed nearly in order.
    With entire batches per process, the consumer would often wait for the slowest process, and the
    others for the consumer.
    """

    def __init__(self, pinning: Pinning | None) -> None:
        self.segments = Segments(pinning)
        self.members = 0  # processes that have not ended
        self.ready = 0  # processes that have finished starting
        self._lock = fork_safety.lock()
        self._begun = 0.0  # time of the latest start
        self._is_ending = False
        self._has_failed = False
        self._parts: SimpleQueue[_Part | None] = SimpleQueue()
        self._groups: list[subprocess.Popen[bytes]] = []
        self._processes: set[_Process] = set()

    def start(self, count: int) -> None:
        """Start processes, without waiting for them; after a failure, do nothing."""
        if self._has_failed:
            return
        self._groups[:] = [each for each in self._groups if each.poll() is None]
        try:
            group, processes = _spawn(count)
        except (OSError, EngineError) as error:
            self._fail(str(error))
            return
        self._groups.append(group)
        self._begun = time.monotonic()
        with self._lock:
            self._processes.update(processes)
            self.members += count
        for number, each in enumerate(processes):
            thread = thread_cache.take()
            thread.start(partial(self._serve, each, thread), f"stream-decode_{number}")

    def submit(self, sources: Sequence[Any], options: _Options) -> Future[_Answer]:
        part = _Part(sources, options, Future())
        with self._lock:
            if self.members:
                self._parts.put(part)
            else:
                part.answer.set_result(_Answer())
        return part.answer

    def wait(self, answer: Future[_Answer]) -> _Answer:
        """Wait for an answer; give up on processes that take long to start."""
        while not self.ready:
            remaining = self._begun + _PATIENCE_SECONDS - time.monotonic()
            try:
                return answer.result(max(remaining, 0))
            except FuturesTimeoutError:
                if not self.ready and answer.cancel():
                    return _Answer()
        return answer.result()

    def end(self) -> None:
        """End all processes and answer waiting requests."""
        self._is_ending = True
        for group in self._groups:
            if group.poll() is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group.pid, signal.SIGKILL)  # it leads the group of those it forked
                group.wait()
        for _ in range(self.members):
            self._parts.put(None)

    def forget(self) -> None:
        """Close this process's copies of its parent's connections."""
        for group in self._groups:
            group.returncode = 0  # a forked child must neither wait for it nor warn about it
        for each in self._processes:
            each.close()

    def _serve(self, process: _Process, thread: CachedThread) -> None:
        try:
            with in_every_group():
                self._serve_until_end(process)
        finally:
            process.close()
            with self._lock:
                self._processes.discard(process)
                self.members -= 1
                self.ready -= process.is_ready
                while not self.members:
                    try:
                        part = self._parts.get_nowait()
                    except Empty:
                        break
                    if part is not None and part.answer.set_running_or_notify_cancel():
                        part.answer.set_result(_Answer())
            thread.release()

    def _serve_until_end(self, process: _Process) -> None:
        try:
            process.wait_until_ready(_START_SECONDS)
        except (OSError, EOFError) as error:
            self._fail(str(error) or "it ended")
            return
        with self._lock:
            self.ready += 1
        asked: deque[tuple[_Part, Segment]] = deque()
        try:
            while self._takes_turn(process, asked):
                pass
        except BaseException as error:
            if not self._is_ending:
                _log.warning(
                    "decode: a process ended; decoding continues in threads: %s", error or "killed"
                )
        for part, segment in asked:
            self.segments.drop(segment)  # the process may still write
            part.answer.set_result(_Answer())

    def _takes_turn(self, process: _Process, asked: deque[tuple[_Part, Segment]]) -> bool:
        """Send the process a part, or receive an answer; return False if there is nothing to do.

        A process gets its next part before it answers. Otherwise it would be idle until a thread
        here is scheduled, which takes long while all processors are decoding.
        """
        part = None
        if not asked:
            part = self._next_part()
        elif len(asked) == 1 and process.is_ahead_possible and self._parts.qsize() > self.members:
            with suppress(Empty):
                part = self._parts.get_nowait()
        if part is None:
            if not asked:
                return False
            self._receive(process, *asked[0])
            asked.popleft()
        elif part.answer.set_running_or_notify_cancel():
            try:
                segment = self.segments.take(process.known)
            except NoSegmentError:
                part.answer.set_result(_Answer())
            else:
                asked.append((part, segment))
                process.ask(segment, self.segments.alive, part.sources, part.options)
        return True

    def _next_part(self) -> _Part | None:
        while True:
            try:
                return self._parts.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._parts.empty():
                        return None

    def _receive(self, process: _Process, part: _Part, segment: Segment) -> None:
        entries, used = process.receive()
        pixels = None
        if used:
            is_pinned = not part.options.leaves_plain
            pixels = self.segments.lend(segment, used, is_pinned=is_pinned)
        else:
            self.segments.give_back(segment)
        part.answer.set_result(_Answer(entries, pixels))

    def _fail(self, reason: str) -> None:
        with self._lock:
            is_known, self._has_failed = self._has_failed, True
        if not (is_known or self._is_ending):
            _log.warning(
                "decode: a process did not start; decoding continues in threads: %s", reason
            )


class _Process:
    """The local side of one process; used by one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = BatchChannel(connection)
        self.known: set[int] = set()  # segments that it has mapped
        self.is_ready = False
        self.is_ahead_possible = False

    def wait_until_ready(self, seconds: float) -> None:
        self._channel.set_timeout(seconds)
        self._channel.receive_ready()
        self._channel.set_timeout(None)
        self.is_ready = True

    def close(self) -> None:
        self._channel.close()

    def ask(
        self,
        segment: Segment,
        alive: frozenset[int],
        sources: Sequence[Any],
        options: _Options,
    ) -> None:
        """Send what to decode into the segment.

        Another part may be sent before the answer is read only if the connection can buffer the
        whole answer. Otherwise there could be a deadlock.
        """
        named: list[SourceOf] = []
        contents: list[bytes] = []
        for source in sources:
            if isinstance(source, (bytes, BytesIO)):
                content = source if isinstance(source, bytes) else source.getvalue()
                named.append(Following(path_of(source), len(content)))
                contents.append(content)
            else:
                named.append(os.fspath(source))
        dropped = tuple(self.known - alive)
        self.known &= alive
        file = None if segment.number in self.known else segment.file
        job = Job(os.getcwd(), named, *options, segment.room, dropped)  # noqa: PTH109  in each part
        self._channel.send_job(job, contents, segment.number, file)
        self.is_ahead_possible = len(sources) <= _MOST_AHEAD and not contents
        self.known.add(segment.number)

    def receive(self) -> tuple[Sequence[Entry], int]:
        """Return an entry for each source that fits into the segment, and the bytes used there."""
        return self._channel.receive_answer()


def _is_encoded(source: object) -> bool:
    """Return whether a source is a file name or bytes that another process can read."""
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        return isinstance(name, str) and not name.startswith(_OWN_FILES)
    return isinstance(source, bytes) or (isinstance(source, BytesIO) and not source.tell())


def _picture_of(entry: Decoded, memory: Array | None, source: object, *, copies: bool) -> Picture:
    assert memory is not None
    height, width, channels = entry.shape
    size = height * width * channels * (4 if entry.is_float else 1)
    pixels = memory[entry.place : entry.place + size]
    if entry.is_float:
        pixels = pixels.view("float32")
    pixels = pixels.reshape(height, width, channels)
    place, length = entry.profile
    for line in entry.log:
        _log.warning("%s", line)
    return Picture(
        pixels.copy() if copies else pixels,
        path_of(source),
        memory[place : place + length].tobytes() or None,
        None if entry.dpi is None else (entry.dpi[0], entry.dpi[1]),
        entry.damage,
        entry.orientation,
        stamp=_stamp_of(entry),
    )


def _plain_picture_of(
    entry: LeftEncoded, memory: Array | None, address: int, source: object
) -> PlainPicture:
    assert memory is not None
    place, length, width, height, channels, orientation, _, _ = entry
    content = memory[place : place + length]
    jpeg = PlainJpeg(content, width, height, channels, orientation, address + place)
    return PlainPicture(jpeg, path_of(source), _stamp_of(entry))


def _stamp_of(entry: Decoded | LeftEncoded) -> Stamp | None:
    return None if entry.stamp is None else Stamp(*entry.stamp)


def _spawn(count: int) -> tuple[subprocess.Popen[bytes], list[_Process]]:
    """Start a process that forks `count` others, which takes only as long as starting one."""
    decode_process.require_interpreter()
    pairs: list[tuple[socket.socket, socket.socket]] = []
    try:
        pairs += (socket.socketpair() for _ in range(count))
        theirs = [each.fileno() for _, each in pairs]
        group = subprocess.Popen(
            decode_process.command("engine.vision.batch_worker", list(map(str, theirs))),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **decode_process.ENVIRONMENT},
            pass_fds=theirs,
            start_new_session=True,  # Ctrl-C does not reach it
        )
    except BaseException:
        for ours, _ in pairs:
            ours.close()
        raise
    finally:
        for _, each in pairs:
            each.close()
    return group, [_Process(ours) for ours, _ in pairs]


def _end(team: _Team, owner: int) -> None:
    if os.getpid() == owner:
        team.end()
