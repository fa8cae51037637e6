"""The connection between a DecodePool and one of its worker processes.

Messages are fixed headers in struct's notation. Encoded pictures and pixels pass through a memory
file that both processes hold open, or through the socket where the system lacks such files.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

GO, STOP = b"G", b"S"  # the answers to Kind.SIZE
READY, SIZE, PIXELS, ERROR = range(4)  # kinds of replies
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # Pillow's names, by number

MAX_TEXT_BYTES = 1 << 16
MAX_PROFILE_BYTES = 4 << 20
_KEPT_BYTES = 1 << 20  # file size to keep, so that small pictures need no new memory

_JOB = struct.Struct("<QQBBBH")
_REPLY = struct.Struct("<BIIBBBQddII")
_HAS_FILES = hasattr(os, "preadv")


class Job(NamedTuple):
    """A picture to decode; its name follows as text."""

    length: int  # bytes
    max_pixels: int
    channels: int
    orient: bool
    lenient: bool
    name: str


class Reply(NamedTuple):
    """What a worker answers; the meaning of the fields depends on `kind`.

    SIZE has the size before rotation, the format and the memory that decoding needs; PIXELS has the
    shape and the other fields of a Picture; ERROR has its text.
    """

    kind: int
    width: int = 0
    height: int = 0
    channels: int = 0  # for SIZE: the number of the format
    is_float: bool = False
    orientation: int = 1  # EXIF orientation
    needed: int = 0  # bytes
    dpi: tuple[float, float] = (0.0, 0.0)
    profile: bytes = b""
    text: str = ""  # an error, or warnings in lines

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.is_float else np.uint8)

    @property
    def length(self) -> int:
        """The number of bytes of the pixels."""
        return self.width * self.height * self.channels * self.dtype.itemsize


class Channel:
    """One end of a connection; `file` is a descriptor, or -1 if the socket carries everything.

    A peer that has ended or violates the protocol causes OSError, EOFError or ValueError.
    """

    def __init__(self, connection: socket.socket, file: int) -> None:
        self._connection = connection
        self._file = file

    def close(self) -> None:
        self._connection.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def set_timeout(self, seconds: float) -> None:
        """Limit how long the peer may be silent."""
        self._connection.settimeout(seconds)

    # ------------------------------------------------------------ messages

    def send_job(self, job: Job, content: bytes) -> None:
        name = job.name.encode("utf-8", "replace")[: MAX_TEXT_BYTES - 1]
        self._send(_JOB.pack(*job[:-1], len(name)) + name, memoryview(content))

    def receive_job(self) -> tuple[Job, bytes]:
        *fields, length = _JOB.unpack(self._receive(_JOB.size))
        name = bytes(self._receive(length)).decode("utf-8", "replace")
        count, max_pixels, channels, orient, lenient = fields
        job = Job(count, max_pixels, channels, bool(orient), bool(lenient), name)
        if self._file < 0:
            return job, bytes(self._receive(count))
        content = os.pread(self._file, count, 0)
        if len(content) < count:
            raise EOFError
        self._trim()
        return job, content

    def send_reply(self, reply: Reply, pixels: NDArray[Any] | None = None) -> None:
        text = reply.text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
        head = _REPLY.pack(
            *(reply.kind, reply.width, reply.height, reply.channels, reply.is_float),
            *(reply.orientation, reply.needed, *reply.dpi, len(reply.profile), len(text)),
        )
        payload = memoryview(b"") if pixels is None else _bytes_of(pixels)
        self._send(head + reply.profile + text, payload)

    def receive_reply(self) -> Reply:
        kind, width, height, channels, is_float, orientation, needed, *dpi, profile, text = (
            _REPLY.unpack(self._receive(_REPLY.size))
        )
        if profile > MAX_PROFILE_BYTES or text > MAX_TEXT_BYTES:
            raise ValueError("reply: too long")
        return Reply(
            *(kind, width, height, channels, bool(is_float), orientation, needed),
            dpi=(dpi[0], dpi[1]),
            profile=bytes(self._receive(profile)),
            text=bytes(self._receive(text)).decode("utf-8", "replace"),
        )

    def receive_pixels(self, reply: Reply) -> NDArray[Any]:
        """Return a copy of the pixels, which the worker can no longer change."""
        pixels = np.empty((reply.height, reply.width, reply.channels), reply.dtype)
        view = _bytes_of(pixels)
        if self._file < 0:
            self._receive_into(view)
            return pixels
        place = 0
        while place < len(view):  # not mapped: truncation while reading would cause SIGBUS
            count = os.preadv(self._file, [view[place:]], place)
            if not count:
                raise EOFError
            place += count
        self._trim()
        return pixels

    def send_answer(self, answer: bytes) -> None:
        self._connection.sendall(answer)

    def receive_answer(self) -> bytes:
        return bytes(self._receive(1))

    # ------------------------------------------------------------ bytes

    def _send(self, head: bytes, payload: memoryview) -> None:
        if self._file < 0:
            self._connection.sendall(head)
            self._connection.sendall(payload)
            return
        place = 0
        while place < len(payload):
            place += os.pwrite(self._file, payload[place:], place)
        self._connection.sendall(head)

    def _trim(self) -> None:
        """Free the memory of a large payload after reading it."""
        if os.fstat(self._file).st_size > _KEPT_BYTES:
            os.ftruncate(self._file, 0)

    def _receive(self, count: int) -> bytearray:
        received = bytearray(count)
        self._receive_into(memoryview(received))
        return received

    def _receive_into(self, view: memoryview) -> None:
        while len(view):
            count = self._connection.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]


def _bytes_of(pixels: NDArray[Any]) -> memoryview:
    return memoryview(np.ascontiguousarray(pixels).data).cast("B")


def make_file() -> int:
    """Return a descriptor of a new memory file, or -1 if the system has none."""
    if not _HAS_FILES:
        return -1
    if hasattr(os, "memfd_create"):
        return os.memfd_create("engine-picture")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
