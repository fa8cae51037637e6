"""Names on standard input, as they come."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from queue import Empty, Queue
from threading import Event, Thread, current_thread, main_thread
from types import FrameType

from engine.cli._interrupts import SIGNALS
from engine.errors import InputError

_PIECE = 1 << 16
_AHEAD = 16  # pieces: a program may write names faster than pictures are looked at
_GLANCE_SECONDS = 0.2


def lines() -> Iterator[str]:
    """Lines as soon as they are there; an interrupt ends the waiting for more of them."""
    if sys.stdin is None:  # it was closed before we began
        raise InputError("-: expected names on standard input, which is closed")
    interrupted = Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        known = before[signal.Signals(number)]
        if callable(known):
            known(number, frame)

    for number, known in before.items():
        if callable(known) and current_thread() is main_thread():
            signal.signal(number, interrupt)
    return _lines(sys.stdin.fileno(), interrupted)


def _lines(descriptor: int, interrupted: Event) -> Iterator[str]:
    pieces: Queue[bytes | OSError] = Queue(_AHEAD)

    def read() -> None:
        # not through sys.stdin: a thread that waits inside it would hold its lock at exit
        try:
            while piece := os.read(descriptor, _PIECE):
                pieces.put(piece)
            pieces.put(b"")
        except OSError as error:  # it is there, but not to be read: what nohup leaves of it
            pieces.put(error)

    Thread(target=read, name="engine-stdin", daemon=True).start()
    rest, is_begun = b"", False
    while not interrupted.is_set():
        try:
            piece = pieces.get(timeout=_GLANCE_SECONDS)
        except Empty:
            continue
        if isinstance(piece, OSError):
            raise InputError(f"-: standard input cannot be read: {piece.strerror}")
        if not is_begun:
            _refuse_a_picture(piece)
            is_begun = True
        *whole, rest = (rest + piece).split(b"\n")
        yield from map(os.fsdecode, whole)
        if not piece:
            yield os.fsdecode(rest)
            return


def _refuse_a_picture(content: bytes) -> None:
    is_binary = b"\0" in content.partition(b"\n")[0]
    if not is_binary and content[:1].isascii():  # a name may begin as a BMP does
        return
    from engine.vision.formats import describe, opener_of

    opener = opener_of(content)
    if is_binary or opener:
        got = f"a {opener.format}" if opener else describe(content)[0]
        raise InputError(f"-: expected names of pictures, one a line, got {got}")
