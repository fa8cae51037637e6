"""Read untrusted files: only regular files, and never more bytes than expected."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from engine.errors import EngineError
from engine.files.naming import shown


def open_regular(path: str | Path, error: type[EngineError]) -> BinaryIO:
    """Open a regular file for reading; refuse folders, pipes, sockets and devices unopened."""
    name = shown(path)
    try:
        # A pipe without a writer would block: check first, and open without waiting.
        _refuse_odd_kinds(Path(path).stat().st_mode, name, error)
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    except EngineError:
        raise
    except OSError as failure:
        raise error(f"{name}: cannot be read: {failure.strerror or failure}") from None
    except ValueError as failure:  # a NUL byte in the path
        raise error(f"{name}: cannot be read: {failure}") from None
    file = os.fdopen(descriptor, "rb")
    try:
        _refuse_odd_kinds(os.fstat(descriptor).st_mode, name, error)
    except EngineError:
        file.close()
        raise
    return file


def read_bytes(path: str | Path, error: type[EngineError], *, limit: int) -> bytes:
    """Return the whole file, which must not exceed `limit` bytes."""
    with open_regular(path, error) as file:
        try:
            size = os.fstat(file.fileno()).st_size or limit  # files of /proc report a size of 0
            data = file.read(min(size, limit) + 1)  # read() allocates its argument up front
        except OSError as failure:
            reason = failure.strerror or failure
            raise error(f"{shown(path)}: cannot be read: {reason}") from None
    if len(data) > limit:
        raise error(f"{shown(path)}: expected at most {limit >> 20} MiB, got more")
    return data


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
