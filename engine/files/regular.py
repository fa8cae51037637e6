"""Read untrusted files: only regular files, and never more bytes than expected."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, cast

from engine.errors import EngineError
from engine.files.naming import shown


def open_regular(path: str | Path, error: type[EngineError]) -> BinaryIO:
    """Open a regular file for reading; refuse folders, pipes, sockets and devices."""
    name = shown(path)
    try:
        # A pipe without a writer would block: check first, and open without waiting.
        _refuse_odd_kinds(Path(path).stat().st_mode, name, error)
        file = open_without_waiting(path)
    except EngineError:
        raise
    except OSError as failure:
        raise error(f"{name}: cannot be read: {failure.strerror or failure}") from None
    except ValueError as failure:  # a NUL byte in the path
        raise error(f"{name}: cannot be read: {failure}") from None
    try:
        _refuse_odd_kinds(os.fstat(file.fileno()).st_mode, name, error)
    except EngineError:
        file.close()
        raise
    return file


def open_without_waiting(path: str | bytes | Path) -> BinaryIO:
    """Open a file for reading without blocking: reading raises OSError if there is no content yet.

    Some files in /proc count as regular, but reading them waits for an event.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    return cast(BinaryIO, io.BufferedReader(_NeverWaiting(descriptor)))


def read_at_once(path: str, size: int) -> bytes:
    """Return at most `size` bytes of a file with a single call that does not block."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


class _NeverWaiting(io.FileIO):
    def readinto(self, buffer: Any, /) -> int:
        return _count_or_error(super().readinto(buffer))

    def readall(self) -> bytes:
        content: bytes | None = super().readall()
        _count_or_error(None if content is None else len(content))
        return content or b""


def _count_or_error(count: int | None) -> int:
    if count is None:
        raise BlockingIOError(errno.EAGAIN, "it has no content to read now")
    return count


def read_bytes(path: str | Path, error: type[EngineError], *, limit: int) -> bytes:
    """Return the whole file, which must not exceed `limit` bytes."""
    with open_regular(path, error) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            # read() allocates its argument up front; files in /proc report a size of 0
            data = file.read(min(size, limit) + 1) if size else _read_up_to(limit + 1, file)
        except OSError as failure:
            reason = failure.strerror or failure
            raise error(f"{shown(path)}: cannot be read: {reason}") from None
    if len(data) > limit:
        raise error(f"{shown(path)}: expected at most {_size(limit)}, got more")
    return data


def _size(count: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} bytes"


def _read_up_to(limit: int, file: BinaryIO) -> bytes:
    data = bytearray()
    while piece := file.read(min(_PIECE, limit - len(data))):
        data += piece
    return bytes(data)


_PIECE = 1 << 16
_BINARY = getattr(os, "O_BINARY", 0)

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def _refuse_odd_kinds(mode: int, name: str, error: type[EngineError]) -> None:
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise error(f"{name}: expected a file, got {kind}")
