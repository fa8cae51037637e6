"""A cache of reusable worker threads.

Threads are reused because the GPU driver and PyCUDA leak a few hundred bytes for each thread that
ever used a context, and every stream and every load needs several threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

_MOST_IDLE = 32  # any further threads end after their job
_IDLE_NAME = "engine-idle"


class CachedThread:
    """A thread that runs one job after another, and returns to the cache between users."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # A daemon, because the interpreter joins other threads before it runs atexit handlers.
        self.thread = threading.Thread(target=_work, args=(self._jobs,), daemon=True)
        self.thread.start()

    def start(self, job: Callable[[], object], name: str) -> None:
        """Run the job under this thread name; an exception from it ends the thread."""
        self.thread.name = name
        self._jobs.put(job)

    def release(self) -> None:
        """Return the thread to the cache; callable from any thread, including this one."""
        self.thread.name = _IDLE_NAME
        if len(_idle) < _MOST_IDLE:
            _idle.append(self)
        else:
            self.end()

    def end(self) -> None:
        """End the thread after its current job."""
        self._jobs.put(None)


def _work(jobs: SimpleQueue[Callable[[], object] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # an idle thread must keep nothing alive


_idle: list[CachedThread] = []  # no lock: a finalizer may release a thread at any bytecode


def take() -> CachedThread:
    """Return an idle thread of this process, or a new one; a fork inherits no threads."""
    while True:
        try:
            thread = _idle.pop()
        except IndexError:
            return CachedThread()
        if thread.process == os.getpid():
            return thread
