"""Ctrl-C while results are written: what a picture's are goes to every output, or to none."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType


class Interrupts:
    """A context in which an interrupt can be held back for a while; a second one is not."""

    def __init__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        self._is_held = self._has_come = False

    def __enter__(self) -> Interrupts:
        if callable(self._before) and current_thread() is main_thread():
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Until this ends; who fails in it fails for that reason."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held, has_come, self._has_come = False, self._has_come, False
        if has_come:
            self._interrupt(signal.SIGINT, None)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._is_held and not self._has_come:
            self._has_come = True
        elif callable(self._before):
            self._before(number, frame)
