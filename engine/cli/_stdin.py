"""Read names from standard input as they arrive."""

from __future__ import annotations

import codecs
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Queue
from threading import Event, Thread, current_thread, main_thread
from types import FrameType

from engine.cli._interrupts import SIGNALS
from engine.errors import InputError
from engine.sources.list_file import parse_lines

_CHUNK = 1 << 16
_MAX_CHUNKS = 16  # bounds the buffer: names may arrive faster than pictures are processed
_POLL_SECONDS = 0.2
_LONGEST_NAME = 4096
_LONGEST_REST = 1 << 20  # maximum bytes without the end of a name
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\r"})  # rare in names, frequent in pictures
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\3\4"
_TAR, _TAR_AT = (b"ustar\x0000", b"ustar  \0"), 257  # POSIX and GNU
_MAP = re.compile(rb"P[1-6]\s+(#[^\n]*\n\s*)*\d+\s+\d+\s")  # PBM, PGM or PPM header


def redirected_file() -> os.stat_result | None:
    """Return the identity of the file that stdin is redirected from, or None."""
    try:
        status = os.fstat(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):  # closed, or replaced by another object
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def names(parse: Callable[[Iterable[str]], Iterable[str]] = parse_lines) -> Iterator[str]:
    """Yield each name as it arrives, one per line or as written by `find -print0`.

    `parse` turns lines, without their ends, into names. An interrupt ends the wait.
    """
    if sys.stdin is None:  # the process was started with a closed stdin
        raise InputError("-: expected names on standard input, which is closed")
    interrupted = Event()
    previous = {number: signal.getsignal(number) for number in SIGNALS}

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        handler = previous[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number, handler in previous.items():
        if callable(handler) and current_thread() is main_thread():
            signal.signal(number, interrupt)
    return _names(sys.stdin.fileno(), interrupted, parse)


def _names(
    descriptor: int, interrupted: Event, parse: Callable[[Iterable[str]], Iterable[str]]
) -> Iterator[str]:
    chunks: Queue[bytes | OSError] = Queue(_MAX_CHUNKS)

    def read() -> None:
        # not through sys.stdin: a waiting thread would hold its lock at exit
        try:
            while chunk := os.read(descriptor, _CHUNK):
                chunks.put(chunk)
            chunks.put(b"")
        except OSError as error:  # for example, nohup opens stdin for writing only
            chunks.put(error)

    Thread(target=read, name="engine-stdin", daemon=True).start()
    rest, end = b"", b""
    while not interrupted.is_set():
        try:
            chunk = chunks.get(timeout=_POLL_SECONDS)
        except Empty:
            continue
        if isinstance(chunk, OSError):
            raise InputError(f"-: standard input cannot be read: {chunk.strerror}")
        rest += chunk
        if len(rest) > _LONGEST_REST:
            raise InputError("-: expected names of pictures, one per line, got a line without end")
        if not end:
            if chunk and len(rest) < _CHUNK and b"\0" not in rest and b"\n" not in rest:
                continue  # the first name may be incomplete
            _refuse_archive(rest)
            end = b"\0" if _ends_names_with_nul(rest) else b"\n"
            if end == b"\n":
                rest = rest.removeprefix(codecs.BOM_UTF8)
                _refuse_picture(rest)
        *ended, rest = rest.split(end)
        given = map(os.fsdecode, ended if chunk else [*ended, rest])
        yield from filter(None, given) if end == b"\0" else parse(given)
        if not chunk:
            return


def _refuse_archive(content: bytes) -> None:
    """Raise for an archive, whose first bytes look like a NUL-terminated name."""
    is_tar = content.startswith(_TAR, _TAR_AT)
    if is_tar or content.startswith(_ZIP):
        raise InputError(
            f"-: expected names of pictures, one per line, got a {'tar' if is_tar else 'zip'} "
            "archive. Write it to a file, and name that"
        )


def _ends_names_with_nul(content: bytes) -> bool:
    """Return whether names are NUL-terminated as by `find -print0`; they may contain line ends.

    The first file may no longer exist: then everything before a NUL must look like a name.
    """
    first, nul, _ = content.partition(b"\0")
    if not nul:
        return False
    *names, _ = content.split(b"\0")
    is_wide = max(map(len, names)) == 1  # UTF-16
    return os.path.lexists(first) or (all(map(_may_be_name, names)) and not is_wide)


def _may_be_name(name: bytes) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name == name.translate(None, _CONTROLS)


def _format_of(content: bytes) -> str | None:
    from engine.vision.formats import opener_of  # imports Pillow's plugins

    opener = opener_of(content)
    return None if opener is None else opener.format


def _refuse_picture(content: bytes) -> None:
    first = content.partition(b"\n")[0]
    is_map = _MAP.match(content) is not None and not os.path.lexists(first.rstrip(b"\r"))
    is_binary = is_map or b"\0" in first or content.startswith(_GZIP)
    if not is_binary and content[:1].isascii():  # a name may begin with BM, as a BMP file does
        return
    found = _format_of(content)
    if is_binary or found:
        from engine.vision.formats import describe

        got = f"a {found}" if found else describe(content)[0]
        raise InputError(f"-: expected names of pictures, one per line, got {got}")
