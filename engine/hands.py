"""Threads that do one job after the other, for whoever has one.

They are kept: a card's driver and PyCUDA leave some hundred bytes behind for each thread that ever
used a context, and every stream and every load needs several.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

_MOST_IDLE = 32  # those beyond end
_IDLE_NAME = "engine-idle"


class Hand:
    """One thread. Who took it gives it a job, and when that is done lets it rest or end."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # A daemon: the interpreter joins other threads before it tells anyone that it ends.
        self.thread = threading.Thread(target=_work, args=(self._jobs,), daemon=True)
        self.thread.start()

    def begin(self, job: Callable[[], object], name: str) -> None:
        """The thread has the name until it rests; what the job raises ends it."""
        self.thread.name = name
        self._jobs.put(job)

    def rest(self) -> None:
        """Until the next job; on whichever thread, this one too."""
        self.thread.name = _IDLE_NAME
        if len(_idle) < _MOST_IDLE:
            _idle.append(self)
        else:
            self.end()

    def end(self) -> None:
        self._jobs.put(None)


def _work(jobs: SimpleQueue[Callable[[], object] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # an idle thread keeps nothing alive


_idle: list[Hand] = []  # without a lock: a finalizer may let one rest amid anything


def take() -> Hand:
    """One that is idle, or a new one; a forked child has none of its parent's."""
    while True:
        try:
            hand = _idle.pop()
        except IndexError:
            return Hand()
        if hand.process == os.getpid():
            return hand
