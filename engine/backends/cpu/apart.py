"""Keeps the threads of a pool off the processor that their caller runs on.

In a virtual machine Linux would rather wake a thread on a busy processor than on one that the host
has put to sleep: caller and worker take turns on one, and two threads take longer than one does.
Elsewhere, and where there is no processor to spare, threads stay as they are.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache


class Apart:
    def __init__(self) -> None:
        self._done: tuple[int, int | None] | None = None

    def keep(self, threads: Sequence[threading.Thread]) -> None:
        """Let running `threads` use all processors of the caller but the one it is on now."""
        current = _current_processor()
        if current is None or not threads:
            return
        processor = current()
        wanted = processor, threads[-1].native_id  # the last to be started, also after a fork
        if wanted == self._done:
            return
        self._done = wanted
        others = os.sched_getaffinity(0) - {processor}
        if len(others) < len(threads):
            return
        for thread in threads:
            assert thread.native_id, "it would stand for the caller"
            with suppress(OSError):  # it has ended, or the system keeps this to itself
                os.sched_setaffinity(thread.native_id, others)


@cache
def _current_processor() -> Callable[[], int] | None:
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.PyDLL(None), "sched_getcpu", None)
