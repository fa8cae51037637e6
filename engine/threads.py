"""Threads that work for others, for as long as anyone needs them.

Those of concurrent.futures take no more work once the main thread has ended, though a program goes
on while another thread of its own works, and they say so in a traceback that nobody can act on.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar
from weakref import WeakSet, finalize

from engine import forks, hands
from engine.errors import EngineError, threads_told
from engine.hands import Hand

Given = ParamSpec("Given")
Made = TypeVar("Made")
_Work: TypeAlias = tuple["Future[Any]", Callable[[], Any]]
_Queue: TypeAlias = "SimpleQueue[_Work | None]"

_PATIENCE_SECONDS = 5.0  # the interpreter does not wait longer for a source that gives nothing


class Threads:
    """Up to `count`, each taken when there is work for it, which they do in its order.

    `name` is that of the threads; before its first dash it says whose they are.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._process = os.getpid()
        self._queue: _Queue = SimpleQueue()
        self._over: list[threading.Event] = []  # for each thread, that it has left
        self._lock = forks.lock()
        self._is_closed = False
        finalize(self, _dismiss, self._queue, self._over).atexit = False
        with _lock:
            _open.add(self)

    def submit(
        self, function: Callable[Given, Made], *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Made]:
        future: Future[Made] = Future()
        with self._lock:
            is_open = not self._is_closed and not _is_ending.is_set()
            if is_open:
                if len(self._over) < self._count:
                    self._take_one()
                self._queue.put((future, lambda: function(*args, **kwargs)))
        if is_open:
            return future
        if _is_ending.is_set() and threading.current_thread().daemon:
            threading.Event().wait()  # until the interpreter is gone: nobody is left to be told
        raise EngineError(f"{self._name}: is closed")

    def close(self) -> None:
        """Return when all that was submitted is done."""
        self.dismiss()
        if not sys.is_finalizing():  # when they stand still wherever they are
            self.wait(math.inf)

    def dismiss(self) -> None:
        """Take no more work; the threads leave after what they have."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                _dismiss(self._queue, self._over)

    def wait(self, end: float) -> None:
        """Until they have left, or until `end` of time.monotonic()."""
        if os.getpid() != self._process:  # a forked child has none of them
            return
        for over in self._over:
            over.wait(min(max(0.0, end - time.monotonic()), threading.TIMEOUT_MAX))

    def _take_one(self) -> None:
        with threads_told(self._name.partition("-")[0]):
            hand = hands.take()
        over = threading.Event()
        name = f"{self._name}_{len(self._over)}"
        hand.begin(partial(_serve, self._queue, hand, over), name)
        self._over.append(over)


_open: WeakSet[Threads] = WeakSet()
_lock = forks.lock()
_is_ending = threading.Event()


def _serve(queue: _Queue, hand: Hand, over: threading.Event) -> None:
    while (work := queue.get()) is not None:
        future, function = work
        try:
            future.set_result(function())
        except BaseException as error:  # told to whoever asks for the result
            future.set_exception(error)
        del work, future, function  # an idle thread keeps nothing alive
    hand.rest()
    over.set()


def _dismiss(queue: _Queue, over: list[threading.Event]) -> None:
    for _ in over:
        queue.put(None)


@atexit.register
def _end() -> None:
    """Let what was begun come to its end, so that no thread is stopped amid foreign code."""
    _is_ending.set()
    with _lock:
        still_open = list(_open)
    for each in still_open:
        each.dismiss()
    end = time.monotonic() + _PATIENCE_SECONDS
    for each in still_open:
        each.wait(end)
