"""Warn when results stop arriving, because Ray does not notice workers that hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

_LEAST_SECONDS = 600.0
_TIMES_AS_LONG = 5  # factor on the longest wait for a result so far


class Silence:
    """A context whose thread warns once when a wait for a result is unusually long."""

    def __init__(self, say: Callable[[str], object], least: float = _LEAST_SECONDS) -> None:
        self._say, self._seconds = say, least
        self._news = Event()
        self._has_ended = False
        self._since = 0.0
        self._thread = Thread(target=self._wait, name="engine-silence", daemon=True)

    def __enter__(self) -> Silence:
        self._since = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._has_ended = True
        self._news.set()

    def end(self) -> None:
        """Record that a result has arrived."""
        now = time.perf_counter()
        self._seconds = max(self._seconds, _TIMES_AS_LONG * (now - self._since))
        self._since = now
        self._news.set()

    def _wait(self) -> None:
        while not self._has_ended:
            if not self._news.wait(self._seconds):
                what = "If workers hang, Ctrl-C ends the run, and the same command continues it"
                self._say(f"no results for {self._seconds:.0f} s. {what}")
                self._news.wait()
            self._news.clear()
