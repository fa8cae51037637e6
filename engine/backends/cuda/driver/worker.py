"""A worker thread that owns thread-bound state; other threads pass it functions to run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from engine.concurrency import thread_cache
from engine.errors import DeviceError, translate_thread_errors

_Result = TypeVar("_Result")
_GLANCE_SECONDS = 0.05


class ClosedError(DeviceError):
    """The device was closed while others still used it."""


class _Call:
    """A function to run on the thread, and its result."""

    __slots__ = ("_done", "_has_ended", "_waiting", "error", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._waiting = [function]  # popped exactly once: by run() or by abandon()
        self._done = threading.Lock()  # faster than an Event
        self._done.acquire()
        self._has_ended = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._waiting.pop()()  # and drop the reference to the function
        except BaseException as error:  # raised again in the caller
            self.error = error
        finally:
            self._has_ended = True
            self._done.release()

    def wait(self) -> Any:
        self._done.acquire()
        if self.error is not None:
            raise self.error
        return self.result

    def abandon(self) -> None:
        """Cancel the call, or wait until it has ended; a second interrupt stops the wait."""
        try:
            self._waiting.pop()
        except IndexError:
            while not self._has_ended:
                self._done.acquire(timeout=_GLANCE_SECONDS)


_Calls: TypeAlias = "SimpleQueue[_Call | None]"


def _serve(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call


class Worker:
    """A thread that runs functions in the order in which they arrive.

    A round trip takes tens of microseconds, so it is for rare operations.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Calls = SimpleQueue()
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._is_closed = False
        with translate_thread_errors(name):
            self._thread = thread_cache.take()
        self._thread.start(partial(_serve, self._calls), name)

    def run(
        self, function: Callable[[], _Result], undo: Callable[[_Result], object] | None = None
    ) -> _Result:
        """Run a function on the thread; return its result or raise its exception.

        If the caller is interrupted, `undo` frees the unclaimed result there.
        """
        if self._is_its_own:
            return function()
        self.check_process()
        call = _Call(function)
        try:
            with self._lock:
                if self._is_closed:
                    raise ClosedError(f"{self._name}: the device is closed")
                self._calls.put(call)
            result: _Result = call.wait()
        except BaseException:  # an interrupt: an abandoned call must not run later
            call.abandon()
            if undo is not None and call.result is not None:
                self.post(partial(undo, call.result))
            raise
        return result

    def post(self, function: Callable[[], object]) -> None:
        """Run a function on the thread later, without waiting: for finalizers."""
        if not self._is_closed:  # otherwise the queue would keep the function alive
            self._calls.put(_Call(function))

    def close(self, last: Callable[[], object], *, is_clean: bool = True) -> None:
        """Run `last` on the thread and release it, for reuse by others only if it is clean."""
        with self._lock:
            if self._is_closed or not self.is_own_process:
                return
            self._is_closed = True
            call = _Call(last)
            if self._is_its_own:  # a finalizer may run on any thread
                call.run()
            else:
                self._calls.put(call)
            self._calls.put(None)
        try:
            call.wait()
        except BaseException:
            is_clean = False
            raise
        finally:
            if is_clean:
                self._thread.release()
            else:
                self._thread.end()

    @property
    def _is_its_own(self) -> bool:
        return threading.get_ident() == self._thread.thread.ident

    @property
    def is_own_process(self) -> bool:
        """Whether this process started the thread; a forked child has no such thread."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        if os.getpid() != self._process:  # and not is_own_process: this is a part of every call
            raise DeviceError(
                f"{self._name}: opened before a fork, which CUDA does not survive. "
                "Load the network after the fork, or start processes with 'spawn'"
            )
