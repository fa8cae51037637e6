"""Keep the threads of a pool off the processor on which their caller runs.

In a virtual machine, Linux prefers to wake a thread on a busy processor to waking it on one that
the host has put to sleep. The caller and a worker then take turns on one processor, and two threads
are slower than one. On other systems, and where there are too few processors, nothing changes.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache


class WorkerAffinity:
    """The affinity of one pool's threads, changed only when the caller or the threads change."""

    def __init__(self) -> None:
        self._applied: tuple[int, int | None] | None = None

    def avoid_caller(self, threads: Sequence[threading.Thread]) -> None:
        """Let running `threads` use every processor of the caller except its current one."""
        current = _current_processor()
        if current is None or not threads:
            return
        processor = current()
        wanted = processor, threads[-1].native_id  # the newest thread, which changes after a fork
        if wanted == self._applied:
            return
        self._applied = wanted
        others = os.sched_getaffinity(0) - {processor}
        if len(others) < len(threads):
            return
        for thread in threads:
            assert thread.native_id, "0 would mean the caller"
            with suppress(OSError):  # the thread has ended, or the system forbids it
                os.sched_setaffinity(thread.native_id, others)


@cache
def _current_processor() -> Callable[[], int] | None:
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.PyDLL(None), "sched_getcpu", None)
