"""A thread pool that keeps working after the main thread has ended.

The standard library's executors refuse work after the main thread has ended, although the program
continues while other threads run. This pool still accepts it.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar
from weakref import WeakSet, finalize

from engine.concurrency import fork_safety, thread_cache
from engine.concurrency.thread_cache import CachedThread
from engine.errors import EngineError, translate_thread_errors

Given = ParamSpec("Given")
Made = TypeVar("Made")
_Work: TypeAlias = tuple["Future[Any]", Callable[[], Any]]
_Queue: TypeAlias = "SimpleQueue[_Work | None]"

_PATIENCE_SECONDS = 5.0  # how long interpreter exit waits for work under way


class ThreadPool:
    """Up to `count` threads, started on demand, that run submitted functions in order.

    `name` names the threads; messages use the part before its first dash for the owner. Pools of
    one `group` wait for each other's threads, and for those of pools created on these threads.
    """

    def __init__(self, count: int, name: str, group: object = None) -> None:
        self._count = count
        self._name = name
        self._group = object() if group is None else group
        self._groups = _groups_here() | {self._group}
        self._process = os.getpid()
        self._queue: _Queue = SimpleQueue()
        self._finished: list[threading.Event] = []  # one for each thread, set when it has ended
        self._lock = fork_safety.lock()
        self._is_closed = False
        finalize(self, _dismiss, self._queue, self._finished).atexit = False
        with _lock:
            _open.add(self)

    def submit(
        self, function: Callable[Given, Made], *args: Given.args, **kwargs: Given.kwargs
    ) -> Future[Made]:
        """Queue a call and return its future."""
        future: Future[Made] = Future()
        with self._lock:
            is_open = not self._is_closed and not _is_ending.is_set()
            if is_open:
                if len(self._finished) < self._count:
                    self._start_thread()
                self._queue.put((future, lambda: function(*args, **kwargs)))
        if is_open:
            return future
        if _is_ending.is_set() and threading.current_thread().daemon:
            threading.Event().wait()  # the interpreter is exiting; nobody would read an error
        raise EngineError(f"{self._name}: is closed")

    def close(self) -> None:
        """Wait until all submitted work is done.

        Do not wait on a thread for which the pool may itself wait: the garbage collector may close
        a dropped stream on any thread.
        """
        self.dismiss()
        here = _groups_here()
        is_own = self._group in here or _EVERY in here
        if not (is_own or sys.is_finalizing()):  # at finalization daemon threads are frozen
            self.wait(math.inf)

    def dismiss(self) -> None:
        """Accept no more work; the threads end after the queued work."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                _dismiss(self._queue, self._finished)

    def wait(self, deadline: float) -> None:
        """Wait until all threads have ended, or until `deadline` on time.monotonic()."""
        if os.getpid() != self._process:  # the threads are those of the parent
            return
        for finished in self._finished:
            remaining = max(0.0, deadline - time.monotonic())
            finished.wait(min(remaining, threading.TIMEOUT_MAX))

    def _start_thread(self) -> None:
        with translate_thread_errors(self._name.partition("-")[0]):
            thread = thread_cache.take()
        finished = threading.Event()
        name = f"{self._name}_{len(self._finished)}"
        thread.start(partial(_serve, self._queue, thread, finished, self._groups), name)
        self._finished.append(finished)


_open: WeakSet[ThreadPool] = WeakSet()
_lock = fork_safety.lock()
_is_ending = threading.Event()
_here = threading.local()
_EVERY = object()


def _groups_here() -> frozenset[object]:
    """Return the groups of the pools that may wait for this thread."""
    groups: frozenset[object] = getattr(_here, "groups", frozenset())
    return groups


@contextmanager
def in_every_group() -> Iterator[None]:
    """Keep close() from waiting on this thread, for which threads of any pool may wait."""
    _here.groups = frozenset((_EVERY,))
    try:
        yield
    finally:
        _here.groups = frozenset()


def _serve(
    queue: _Queue, thread: CachedThread, finished: threading.Event, groups: frozenset[object]
) -> None:
    _here.groups = groups
    while (work := queue.get()) is not None:
        future, function = work
        try:
            future.set_result(function())
        except BaseException as error:  # raised where the result is asked for
            future.set_exception(error)
        del work, future, function  # an idle thread must keep nothing alive
    _here.groups = frozenset()
    thread.release()
    finished.set()


def _dismiss(queue: _Queue, finished: list[threading.Event]) -> None:
    for _ in finished:
        queue.put(None)


@atexit.register
def _end() -> None:
    """Finish running work, so that no thread is frozen inside foreign code."""
    _is_ending.set()
    with _lock:
        still_open = list(_open)
    for each in still_open:
        each.dismiss()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for each in still_open:
        each.wait(deadline)
