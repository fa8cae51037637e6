"""Decode many pictures at a time in processes, whose Python code does not wait for a common lock.

Pillow decodes without the interpreter's lock, but the Python code around it needs the lock for so
long that more than four threads of one process gain little. The pixels come back in shared memory.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple
from weakref import finalize

from engine.arrays import Array
from engine.concurrency import fork_safety
from engine.errors import EngineError
from engine.vision import decode_process, picture_limits
from engine.vision.batch_channel import BatchChannel, Decoded, Job, SourceOf
from engine.vision.image import Picture, path_of
from engine.vision.shared_pixels import Segment, Segments

IS_POSSIBLE = hasattr(os, "memfd_create") and hasattr(socket, "send_fds")
LEAST_THREADS = 4  # fewer decode as fast by themselves
WORTHWHILE = 100  # pictures, whose decoding takes about as long as starting the processes
_OWN_FILES = ("/dev/", "/proc/")  # names that mean something else in another process

_log = logging.getLogger("engine")


class Reading(NamedTuple):
    """How a stream wants its pictures."""

    processes: int
    copies: bool  # pixels outlive the batch, and must not hold the memory of all its pictures


class BatchDecoder:
    """Processes that any number of threads share; they start when a stream has become long.

    After a minute without pictures they end.
    """

    def __init__(self) -> None:
        self._lock = fork_safety.lock()
        self._is_closed = False
        self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._seen = 0  # pictures
        self._has_failed = False
        self._segments = Segments()
        self._groups: list[subprocess.Popen[bytes]] = []
        self._processes: set[_Process] = set()
        self._starting: list[_Process] = []
        self._ready = 0  # number of processes that are idle or in use
        self._idle: SimpleQueue[_Process | None] = SimpleQueue()
        self._finalizer = finalize(self, _end_all, self._groups, self._processes, self._owner)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the memory for pixels until the end of a stream."""
        segments = self._segments
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
    ) -> list[tuple[Any, float]]:
        """Return the sources, encoded ones as Pictures, with the milliseconds that each took.

        What no process decodes stays as it is: image.read() of it gives the picture or the error.
        """
        found = [(each, 0.0) for each in sources]
        left = [number for number, each in enumerate(sources) if _is_encoded(each)]
        if not left or not self._is_ready(min(how.processes, _processors()), len(left)):
            return found
        most = picture_limits.PIXELS if max_pixels is None else max_pixels
        while left:
            given = [sources[number] for number in left]
            entries, pixels = self._decoded(given, (channels, orient, most, lenient))
            for number, entry in zip(left, entries, strict=False):
                if entry is not None:
                    picture = _picture_of(entry, pixels, sources[number], copies=how.copies)
                    found[number] = picture, entry.milliseconds
            left = left[len(entries) :] if entries else []
        return found

    def close(self) -> None:
        """End all processes; threads that wait for one decode by themselves."""
        with self._lock:
            self._is_closed = True
            self._ready = 0
            self._idle.put(None)
        self._finalizer()

    def _decoded(
        self, sources: Sequence[Any], options: tuple[int, bool, int, bool]
    ) -> tuple[Sequence[Decoded | None], Array | None]:
        """Return entries for the first sources, at least for one, and the pixels of all.

        Without a process there are no entries.
        """
        process = self._take()
        if process is None:
            return (), None
        try:
            with self._segments.taken() as segment:
                entries, used = process.ask(segment, self._segments.alive, sources, options)
                pixels = self._segments.lend(segment, used) if used else None
        except BaseException as error:
            self._lose(process)
            if not isinstance(error, (OSError, EOFError, ValueError, TypeError)):
                raise
            _log.warning("decode: a process ended, and threads go on: %s", error or "killed")
            return (), None
        self._idle.put(process)
        return entries, pixels

    # ------------------------------------------------------------ processes

    def _is_ready(self, wanted: int, new: int) -> bool:
        """Count pictures, start processes when they are worthwhile, and tell if one is ready."""
        with self._lock:
            self._leave_parent()
            self._seen += new
            self._collect()
            is_worthwhile = self._seen > WORTHWHILE and not (self._is_closed or self._has_failed)
            if is_worthwhile and self._ready + len(self._starting) < wanted:
                self._start(wanted - self._ready - len(self._starting))
            return self._ready > 0

    def _take(self) -> _Process | None:
        """Return a process when one is idle, or None if there is none any more."""
        while True:
            with self._lock:
                if not self._ready:
                    return None
                idle = self._idle
            process = idle.get()
            if process is None:
                idle.put(None)  # for the next thread
                return None
            if not process.has_ended():
                return process
            self._lose(process)

    def _lose(self, process: _Process) -> None:
        process.close()
        with self._lock:
            self._processes.discard(process)
            self._ready = max(self._ready - 1, 0)
            if not self._ready:
                self._idle.put(None)
                self._idle = SimpleQueue()

    def _collect(self) -> None:
        """Make processes available that have started."""
        if not self._starting:
            return
        waiting = []
        for each in self._starting:
            try:
                if each.is_ready():
                    self._ready += 1
                    self._idle.put(each)
                else:
                    waiting.append(each)
            except (OSError, EOFError):
                each.close()
                self._processes.discard(each)
                self._fail("it ended")
        self._starting = waiting

    def _start(self, count: int) -> None:
        self._groups[:] = [each for each in self._groups if each.poll() is None]
        try:
            group, processes = _spawn(count)
        except (OSError, EngineError) as error:
            self._fail(str(error))
            return
        self._groups.append(group)
        self._processes.update(processes)
        self._starting += processes

    def _fail(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log.warning("decode: a process does not start, and threads go on: %s", reason)

    def _leave_parent(self) -> None:
        """Forget processes and memory that belong to the parent of this fork."""
        if self._owner == os.getpid():
            return
        self._finalizer.detach()
        for group in self._groups:
            group.returncode = 0  # a fork may neither wait for it nor warn about it
        for each in self._processes:
            each.close()
        self._reset()


class _Process:
    """This side of one process; used by one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = BatchChannel(connection)
        self._known: set[int] = set()  # segments that it has mapped

    def is_ready(self) -> bool:
        return self._channel.receive_ready()

    def has_ended(self) -> bool:
        return self._channel.has_ended()

    def close(self) -> None:
        self._channel.close()

    def ask(
        self,
        segment: Segment,
        alive: frozenset[int],
        sources: Sequence[Any],
        options: tuple[int, bool, int, bool],
    ) -> tuple[Sequence[Decoded | None], int]:
        """Return an entry for each source that fits into the segment, and the bytes used there."""
        named, contents = [], []
        for source in sources:
            name, content = _named(source)
            named.append(SourceOf(name, None if content is None else len(content)))
            if content is not None:
                contents.append(content)
        dropped = tuple(self._known - alive)
        self._known &= alive
        file = None if segment.number in self._known else segment.file
        job = Job(str(Path.cwd()), named, *options, segment.room, dropped)
        self._channel.send_job(job, contents, segment.number, file)
        self._known.add(segment.number)
        return self._channel.receive_answer()


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _is_encoded(source: object) -> bool:
    """Tell whether a source is a file's name, or bytes, that another process can read."""
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        return isinstance(name, str) and not name.startswith(_OWN_FILES)
    return isinstance(source, bytes) or (isinstance(source, BytesIO) and not source.tell())


def _named(source: Any) -> tuple[str | None, bytes | None]:
    """Return the name of a file, or the name and the content of encoded bytes."""
    if isinstance(source, BytesIO):
        return path_of(source), source.getvalue()
    if isinstance(source, bytes):
        return None, source
    return os.fspath(source), None


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
    )


def _spawn(count: int) -> tuple[subprocess.Popen[bytes], list[_Process]]:
    """Start a process that forks `count` others, which takes as long as starting one."""
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


def _end_all(groups: list[subprocess.Popen[bytes]], processes: set[_Process], owner: int) -> None:
    if os.getpid() != owner:
        return
    for group in groups:
        if group.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group.pid, signal.SIGKILL)  # it leads the group of those it forked
            group.wait()
    groups.clear()
    for each in processes:
        each.close()
    processes.clear()
