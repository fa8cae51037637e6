"""Ctrl-C, and being asked to end, while results are written: what a picture's are goes to every
output, or to none.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """By SIGTERM, as service managers and containers ask a program to end."""


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM is an interrupt unless somebody else has a use for it."""
    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_free or current_thread() is not main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


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
