"""The connection between a BatchDecoder and one of its processes: JSON, then bytes.

A job says how to decode a number of sources: file names, or the bytes that follow. The answer has
an entry for each source that fits into the job's memory segment, in order: a Decoded, a
LeftEncoded, or None where the caller's process should read the source itself, to get the error or
because of its size.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

_HEAD = struct.Struct("<II")  # bytes of the JSON text; number of the segment
_MAX_FILES = 1
_ANSWER_BYTES = 1 << 16  # most answers are shorter


class Following(NamedTuple):
    """Bytes that follow a job: their number, and their name if they have one."""

    name: str | None
    length: int


SourceOf: TypeAlias = "str | Following"  # a string is the name of a file


class Job(NamedTuple):
    folder: str  # the working directory that names refer to
    sources: Sequence[SourceOf]
    channels: int
    orient: bool
    max_pixels: int
    lenient: bool
    leaves_plain: bool  # whether ordinary JPEGs stay encoded
    room: int  # bytes in the segment
    dropped: Sequence[int] = ()  # segments no longer in use


class Decoded(NamedTuple):
    """The place of a picture's pixels in the segment, and the other fields of a Picture."""

    place: int
    shape: tuple[int, int, int]
    is_float: bool
    milliseconds: float
    profile: tuple[int, int]  # place and length
    dpi: tuple[float, float] | None
    damage: str | None
    orientation: int
    log: Sequence[str]
    stamp: Sequence[int] | None  # the fields of a Stamp


class LeftEncoded(NamedTuple):
    """The place of an undecoded JPEG in the segment, and the fields of a PlainPicture."""

    place: int
    length: int
    width: int
    height: int
    channels: int
    orientation: int
    milliseconds: float
    stamp: Sequence[int] | None


Entry: TypeAlias = "Decoded | LeftEncoded | None"
# Entries are recognised by their number of fields. Their own constructors are slower.
_MAKE: dict[int, Any] = {
    len(kind._fields): partial(tuple.__new__, kind) for kind in (Decoded, LeftEncoded)
}


class BatchChannel:
    """One end of a connection.

    A peer that has ended or violates the protocol causes OSError, EOFError, ValueError or
    TypeError.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""  # bytes not yet part of an answer

    def close(self) -> None:
        self._connection.close()

    def set_timeout(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def send_ready(self) -> None:
        self._connection.sendall(b"R")

    def receive_ready(self) -> None:
        self._receive(1)

    def send_job(self, job: Job, contents: Sequence[bytes], segment: int, file: int | None) -> None:
        """Send a job; `file` is the descriptor of a segment that the peer does not know yet."""
        text = json.dumps(job).encode()
        head = _HEAD.pack(len(text), segment)
        if file is not None:
            socket.send_fds(self._connection, [head], [file])
            head = b""
        self._connection.sendall(head + text)
        for content in contents:
            self._connection.sendall(content)

    def receive_job(self) -> tuple[Job, list[bytes], int, int | None]:
        """Return a job, contents that follow, the number of its segment and a new descriptor."""
        head, files, _, _ = socket.recv_fds(self._connection, _HEAD.size, _MAX_FILES)
        if not head:
            raise EOFError
        head += self._receive(_HEAD.size - len(head))
        length, segment = _HEAD.unpack(head)
        job = Job(*json.loads(self._receive(length)))
        sources = [each if isinstance(each, str) else Following(*each) for each in job.sources]
        lengths = [each.length for each in sources if isinstance(each, Following)]
        contents = [bytes(self._receive(each)) for each in lengths]
        return job._replace(sources=sources), contents, segment, files[0] if files else None

    def send_answer(self, entries: Sequence[Entry], used: int) -> None:
        text = json.dumps(entries).encode()
        self._connection.sendall(_HEAD.pack(len(text), used) + text)

    def receive_answer(self) -> tuple[list[Entry], int]:
        """Return the entries, and the number of bytes used in the segment.

        Each system call releases the GIL, so most answers take only one.
        """
        length, used = _HEAD.unpack(self._next(_HEAD.size))
        found: list[Any] = json.loads(self._next(length))
        return [each and _MAKE[len(each)](each) for each in found], used

    def _next(self, count: int) -> bytes:
        while len(self._received) < count:
            got = self._connection.recv(max(_ANSWER_BYTES, count - len(self._received)))
            if not got:
                raise EOFError
            self._received += got
        taken, self._received = self._received[:count], self._received[count:]
        return taken

    def _receive(self, count: int) -> bytearray:
        received = bytearray(count)
        view = memoryview(received)
        while len(view):
            got = self._connection.recv_into(view)
            if not got:
                raise EOFError
            view = view[got:]
        return received
