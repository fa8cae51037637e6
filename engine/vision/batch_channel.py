"""The connection between a BatchDecoder and one of its processes: JSON, then bytes.

A job says how to decode a number of sources: names of files, or the bytes that follow. The answer
has an entry for each that fits into the job's segment of memory, in order: a Decoded, or nothing
where this process should read the source itself, for the error or because of its size.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

_HEAD = struct.Struct("<II")  # bytes of the JSON text; number of the segment
_MAX_FILES = 1


class SourceOf(NamedTuple):
    """A file's name, or the number of bytes that follow and their name, if they have one."""

    name: str | None
    length: int | None


class Job(NamedTuple):
    folder: str  # the working directory that names refer to
    sources: Sequence[SourceOf]
    channels: int
    orient: bool
    max_pixels: int
    lenient: bool
    leaves_plain: bool  # JPEGs of the usual kind stay encoded
    room: int  # bytes of the segment
    dropped: Sequence[int] = ()  # segments that nobody uses any more


class Decoded(NamedTuple):
    """Where the pixels of a picture lie in the segment, and what a Picture holds besides.

    With `encoded`, its length in bytes, it is a JPEG that was left as it is.
    """

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
    encoded: int | None = None


class BatchChannel:
    """One end of a connection.

    A peer that has ended or does not keep to the protocol causes OSError, EOFError, ValueError or
    TypeError.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    def set_timeout(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def send_ready(self) -> None:
        self._connection.sendall(b"R")

    def receive_ready(self) -> None:
        self._receive(1)

    def send_job(self, job: Job, contents: Sequence[bytes], segment: int, file: int | None) -> int:
        """Send a job, and return the length of its text.

        `file` is the descriptor of a segment that the peer does not know yet.
        """
        text = json.dumps(job).encode()
        head = _HEAD.pack(len(text), segment)
        if file is None:
            self._connection.sendall(head)
        else:
            socket.send_fds(self._connection, [head], [file])
        self._connection.sendall(text)
        for content in contents:
            self._connection.sendall(content)
        return len(text)

    def receive_job(self) -> tuple[Job, list[bytes], int, int | None]:
        """Return a job, contents that follow, the number of its segment and a new descriptor."""
        head, files, _, _ = socket.recv_fds(self._connection, _HEAD.size, _MAX_FILES)
        if not head:
            raise EOFError
        head += self._receive(_HEAD.size - len(head))
        length, segment = _HEAD.unpack(head)
        job = Job(*json.loads(self._receive(length)))
        job = job._replace(sources=[SourceOf(*each) for each in job.sources])
        lengths = [each.length for each in job.sources if each.length is not None]
        contents = [bytes(self._receive(each)) for each in lengths]
        return job, contents, segment, files[0] if files else None

    def send_answer(self, entries: Sequence[Decoded | None], used: int) -> None:
        text = json.dumps(entries).encode()
        self._connection.sendall(_HEAD.pack(len(text), used) + text)

    def receive_answer(self) -> tuple[list[Decoded | None], int]:
        """Return the entries, and the number of bytes that the segment's pixels take."""
        length, used = _HEAD.unpack(self._receive(_HEAD.size))
        found: list[Any] = json.loads(self._receive(length))
        return [None if each is None else Decoded(*each) for each in found], used

    def _receive(self, count: int) -> bytearray:
        received = bytearray(count)
        view = memoryview(received)
        while len(view):
            got = self._connection.recv_into(view)
            if not got:
                raise EOFError
            view = view[got:]
        return received
