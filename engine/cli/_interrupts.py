"""Ctrl-C, and being asked to end: not amid an import; and while results are written, what a
picture's are goes to every output, or to none.
"""

from __future__ import annotations

import _thread
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}
_LONGEST_IMPORT = 5.0  # seconds; somebody's module may run all of this while it is imported
_GLANCE_SECONDS = 0.02


class Terminated(KeyboardInterrupt):
    """By SIGTERM, as service managers and containers ask a program to end."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM is an interrupt, too, and none breaks into an import.

    That would leave a lock of Python's behind, for which a thread that imports the same waits for
    ever. What somebody else has a use for stays his.
    """
    changed = []
    if current_thread() is main_thread():
        changed = [each for each in _USUAL if signal.getsignal(each) is _USUAL[each]]
    interrupts = {number: _Interrupt() for number in changed}
    for number, interrupt in interrupts.items():
        signal.signal(number, interrupt)
    try:
        try:
            yield
        finally:
            while any(each.is_to_come for each in interrupts.values()):
                time.sleep(_GLANCE_SECONDS)
    finally:
        for number in changed:
            signal.signal(number, _USUAL[number])


class _Interrupt:
    """Raises; amid an import it has the signal come again, until that ends or takes too long."""

    def __init__(self) -> None:
        self._since: float | None = None

    @property
    def is_to_come(self) -> bool:
        return self._since is not None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self._since = since = self._since or now
        if _is_import(frame) and now - since < _LONGEST_IMPORT:
            with suppress(RuntimeError):  # no thread to be had
                _thread.start_new_thread(_come_again, (number,))  # which takes no lock
                return
        self._since = None
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _come_again(number: int) -> None:
    time.sleep(_GLANCE_SECONDS)
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        signal.pthread_kill(main_thread().ident or 0, number)  # which wakes it where it waits


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """A context in which an interrupt can be held back for a while; a second one is not."""

    def __init__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self._is_held = False
        self._has_come: int | None = None

    def __enter__(self) -> Interrupts:
        for number, before in self._before.items():
            if callable(before) and current_thread() is main_thread():
                signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._interrupt:
                signal.signal(number, before)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until this ends; who fails in it fails for that reason."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held, number, self._has_come = False, self._has_come, None
        if number is not None:
            self._interrupt(number, None)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        before = self._before[signal.Signals(number)]
        if self._is_held and self._has_come is None:
            self._has_come = number
        elif callable(before):
            before(number, frame)
