"""Decode untrusted pictures in processes that are killed and replaced if they exceed limits."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from queue import SimpleQueue
from typing import NamedTuple
from weakref import finalize

from engine.concurrency import fork_safety
from engine.errors import EngineError, ImageError, InputError
from engine.files.naming import shown
from engine.vision import decode_process, picture_limits
from engine.vision.decode_channel import (
    ERROR,
    FORMATS,
    GO,
    PIXELS,
    READY,
    SIZE,
    STOP,
    Channel,
    Job,
    Reply,
    make_file,
)
from engine.vision.image import Picture

_MIN_PROCESSES = 2
_MAX_PROCESSES = 16
_START_SECONDS = 60.0
_END_SECONDS = 5.0
_WALL_SECONDS_PER_SECOND = 15.0  # wall time per processor time, on a busy machine
_MIN_WALL_SECONDS = 5.0

_log = logging.getLogger("engine")


@dataclass(frozen=True)
class DecodeLimits:
    """Limits on the cost of one picture in a worker process.

    `extra_bytes` are allowed in addition to the needs computed from its header.
    """

    seconds: float = 2.0  # processor time, for the header and for the pixels
    extra_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise InputError(f"{field.name}: expected a number above 0, got {value!r}")


class Opened(NamedTuple):
    """The content of a picture's header, and the bytes that decoding needs."""

    width: int
    height: int
    format: str  # Pillow's name
    needed: int


Admit = Callable[[Opened], None]


def usual_count(processors: int) -> int:
    """Return the default number of processes for a number of processors.

    It is at least two, so that one slow picture does not delay all others.
    """
    return min(max(processors, _MIN_PROCESSES), _MAX_PROCESSES)


class DecodePool:
    """Up to `count` worker processes, which any number of threads share.

    The first one starts at once, so that it is ready when a network is; others start on demand, or
    with start().
    """

    def __init__(self, count: int, limits: DecodeLimits | None = None) -> None:
        self.count = count
        self._limits = limits or DecodeLimits()
        self._lock = fork_safety.lock()
        self._is_closed = False
        self._reset()
        with self._lock:
            self._add()

    def start(self) -> None:
        """Start all processes, without waiting until they are ready."""
        with self._lock:
            while len(self._workers) < self.count:
                self._add()

    def read(
        self,
        content: bytes,
        name: str,
        *,
        channels: int,
        orient: bool = True,
        max_pixels: int | None = None,
        lenient: bool = False,
        admit: Admit | None = None,
    ) -> Picture:
        """Decode a picture as image.read() does, without a path.

        `admit` is told the size before any pixel is decoded, and may raise an error to prevent it.
        """
        most = picture_limits.PIXELS if max_pixels is None else max_pixels
        worker = self._take()
        try:
            return worker.read(
                Job(len(content), most, channels, orient, lenient, name), content, admit
            )
        finally:
            self._give_back(worker)

    def open(self, content: bytes, name: str) -> Opened:
        """Read the header of a picture."""
        found: list[Opened] = []

        def keep_and_stop(opened: Opened) -> None:
            found.append(opened)
            raise _EnoughError

        with suppress(_EnoughError):
            self.read(content, name, channels=3, admit=keep_and_stop)
        return found[0]

    def close(self) -> None:
        """End all processes; reading threads get an error."""
        with self._lock:
            self._is_closed = True
        self._idle.put(None)
        self._finalizer()

    # ------------------------------------------------------------ processes

    def _reset(self) -> None:
        self._process = os.getpid()
        self._workers: set[_Worker] = set()
        self._idle: SimpleQueue[_Worker | None] = SimpleQueue()
        self._finalizer = finalize(self, _end_all, self._workers, self._process)

    def _add(self) -> None:
        worker = _Worker(self._limits)
        self._workers.add(worker)
        self._idle.put(worker)

    def _take(self) -> _Worker:
        while True:
            with self._lock:
                if self._process != os.getpid():  # after a fork, the processes belong to the parent
                    self._finalizer.detach()
                    for each in self._workers:
                        each.forget()
                    self._reset()
                if not self._is_closed and self._idle.empty() and len(self._workers) < self.count:
                    self._add()
                idle = self._idle
            worker = idle.get()
            if worker is None or self._is_closed:
                idle.put(None)  # for the next thread
                raise EngineError("decode: is closed")
            if worker.is_alive():
                return worker
            self._give_back(worker)

    def _give_back(self, worker: _Worker) -> None:
        """Keep a worker if it is ready for another picture, or else replace it."""
        if worker.is_idle and worker.is_alive():
            self._idle.put(worker)
            return
        worker.end()
        with self._lock:
            self._workers.discard(worker)
            if not self._is_closed:
                self._add()


class _EnoughError(Exception):
    pass


class _Worker:
    """One process; used by one thread at a time."""

    def __init__(self, limits: DecodeLimits) -> None:
        self._limits = limits
        self._wall_seconds = max(limits.seconds * _WALL_SECONDS_PER_SECOND, _MIN_WALL_SECONDS)
        self._is_ready = False
        self.is_idle = True  # no picture is in progress
        self._child, self._channel = _start(limits)

    def is_alive(self) -> bool:
        return self._child.poll() is None

    def read(self, job: Job, content: bytes, admit: Admit | None) -> Picture:
        self.is_idle = False
        self._wait_until_ready()
        try:
            self._channel.set_timeout(self._wall_seconds)
            self._channel.send_job(job, content)
            reply = self._reply(job)
            if reply.kind != SIZE or reply.width * reply.height > job.max_pixels:
                raise ValueError("reply: out of order")
            opened = Opened(reply.width, reply.height, FORMATS[reply.channels], reply.needed)
            self._ask(admit, opened)
            reply = self._reply(job)
            if reply.kind != PIXELS:
                raise ValueError("reply: out of order")
            _check_shape(reply, opened)
            pixels = self._channel.receive_pixels(reply)
        except (OSError, EOFError, ValueError, IndexError) as error:
            if isinstance(error, EngineError):
                raise
            raise ImageError(f"{job.name}: picture: {self._reason(error)}") from None
        self.is_idle = True
        lines = [shown(line) for line in reply.text.splitlines()]
        for line in lines:
            _log.warning("%s", line)
        return Picture(
            *(pixels, None, reply.profile or None, reply.dpi if reply.dpi[0] else None),
            damage=lines[-1].removeprefix(f"{job.name}: ") if lines and not job.lenient else None,
            orientation=reply.orientation,
        )

    def end(self) -> None:
        """Kill the process and free what belongs to it."""
        self._child.kill()
        self._child.wait()
        self.forget()

    def forget(self) -> None:
        """Close this process's copy of the connection."""
        if self._child.returncode is None:
            self._child.returncode = 0  # a forked child must neither wait for it nor warn about it
        for stream in (self._child.stdin, self._child.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._channel.close()

    def _ask(self, admit: Admit | None, opened: Opened) -> None:
        try:
            if admit is not None:
                admit(opened)
        except BaseException:
            self._channel.send_answer(STOP)
            self.is_idle = True
            raise
        self._channel.send_answer(GO)

    def _reply(self, job: Job) -> Reply:
        reply = self._channel.receive_reply()
        if reply.kind == ERROR:
            self.is_idle = True
            raise ImageError(reply.text)
        return reply

    def _wait_until_ready(self) -> None:
        if self._is_ready:
            return
        try:
            self._channel.set_timeout(_START_SECONDS)
            self._is_ready = self._channel.receive_reply().kind == READY
        except (OSError, EOFError, ValueError) as error:
            self._child.kill()
            _, said = self._child.communicate()
            lines = (said or b"").decode("utf-8", "replace").strip().splitlines()
            reason = shown(lines[-1]) if lines else str(error) or "it ended"
            raise EngineError(f"decode: a worker process does not start: {reason}") from None

    def _reason(self, error: Exception) -> str:
        """Return why there are no pixels; wait briefly for the status of an ended process."""
        if isinstance(error, TimeoutError):
            return f"cannot be decoded within {self._wall_seconds:g} s"
        if isinstance(error, EOFError | ConnectionError):
            with suppress(subprocess.TimeoutExpired):
                status = self._child.wait(_END_SECONDS)
                if -status in (getattr(signal, "SIGPROF", 0), getattr(signal, "SIGXCPU", 0)):
                    seconds = f"{self._limits.seconds:g} s of processor time"
                    return f"cannot be decoded within {seconds}"
                return f"cannot be decoded: its process ended with status {status}"
        return f"cannot be decoded: {error or type(error).__name__}"


def _check_shape(reply: Reply, opened: Opened) -> None:
    """Refuse pixels that would take more memory than announced."""
    is_allowed = {reply.width, reply.height} == {opened.width, opened.height}
    if not is_allowed or reply.channels not in (1, 3, 4):
        raise ValueError("reply: another picture")


def _start(limits: DecodeLimits) -> tuple[subprocess.Popen[bytes], Channel]:
    decode_process.require_interpreter()
    ours, theirs = socket.socketpair()
    file = make_file()
    options = [str(limits.seconds), str(limits.extra_bytes)]
    with theirs:
        try:
            child = _spawn(options, theirs, file)
        except OSError as error:
            ours.close()
            if file >= 0:
                os.close(file)
            reason = error.strerror or error
            raise EngineError(f"decode: a worker process does not start: {reason}") from None
    return child, Channel(ours, file)


def _spawn(options: list[str], theirs: socket.socket, file: int) -> subprocess.Popen[bytes]:
    arguments = [*options, str(theirs.fileno()), str(file)]
    command = decode_process.command("engine.vision.decode_worker", arguments)
    environment = {**os.environ, **decode_process.ENVIRONMENT}
    if sys.platform == "win32":
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,  # Ctrl-C does not reach it
        )
        assert child.stdin is not None
        child.stdin.write(theirs.share(child.pid))
        child.stdin.close()
        return child
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        pass_fds=(theirs.fileno(), file) if file >= 0 else (theirs.fileno(),),
        start_new_session=True,  # Ctrl-C does not reach it
    )


def _end_all(workers: set[_Worker], process: int) -> None:
    if os.getpid() == process:
        for each in list(workers):
            each.end()
        workers.clear()
