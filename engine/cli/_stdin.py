"""Read names from standard input as they arrive."""

from __future__ import annotations

import codecs
import os
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
_MAX_CHUNKS = 16  # buffered, as names may arrive faster than pictures are processed
_POLL_SECONDS = 0.2


def redirected_file() -> os.stat_result | None:
    """Return the identity of the file that stdin is redirected from, or None."""
    try:
        status = os.fstat(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):  # closed, or replaced by another object
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def names(parse: Callable[[Iterable[str]], Iterable[str]] = parse_lines) -> Iterator[str]:
    """Yield each name as it arrives, in a line or as `find -print0` writes it.

    `parse` finds the names in lines, which come without their ends. An interrupt ends the wait.
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
        # not through sys.stdin: a thread that waits in it would hold its lock at exit
        try:
            while chunk := os.read(descriptor, _CHUNK):
                chunks.put(chunk)
            chunks.put(b"")
        except OSError as error:  # for example, nohup opens stdin for writing only
            chunks.put(error)

    Thread(target=read, name="engine-stdin", daemon=True).start()
    rest, is_first, end = b"", True, b"\n"
    while not interrupted.is_set():
        try:
            chunk = chunks.get(timeout=_POLL_SECONDS)
        except Empty:
            continue
        if isinstance(chunk, OSError):
            raise InputError(f"-: standard input cannot be read: {chunk.strerror}")
        if is_first and _ends_names_with_nul(chunk):
            end = b"\0"
        elif is_first:
            chunk = chunk.removeprefix(codecs.BOM_UTF8)
            _refuse_picture(chunk)
        is_first = False
        *ended, rest = (rest + chunk).split(end)
        given = map(os.fsdecode, ended if chunk else [*ended, rest])
        yield from filter(None, given) if end == b"\0" else parse(given)
        if not chunk:
            return


def _ends_names_with_nul(content: bytes) -> bool:
    """Tell whether names are separated as by `find -print0`, which may hold line ends.

    The first file may be gone by now: then its name must be text, and not the start of a picture.
    """
    first, nul, _ = content.partition(b"\0")
    if not nul:
        return False
    return os.path.lexists(first) or (_is_text(first) and _format_of(content) is None)


def _is_text(name: bytes) -> bool:
    try:
        return name.decode().isprintable() and name != b""
    except UnicodeDecodeError:
        return False


def _format_of(content: bytes) -> str | None:
    from engine.vision.formats import opener_of  # imports Pillow's plugins

    opener = opener_of(content)
    return None if opener is None else opener.format


def _refuse_picture(content: bytes) -> None:
    is_binary = b"\0" in content.partition(b"\n")[0]
    if not is_binary and content[:1].isascii():  # a name may begin with BM, like a BMP file
        return
    found = _format_of(content)
    if is_binary or found:
        from engine.vision.formats import describe

        got = f"a {found}" if found else describe(content)[0]
        raise InputError(f"-: expected names of pictures, one per line, got {got}")
