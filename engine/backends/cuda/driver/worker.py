"""One thread that owns what may be touched from one thread only; others hand it functions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from engine.concurrency import thread_cache
from engine.errors import DeviceError

_Result = TypeVar("_Result")
_GLANCE_SECONDS = 0.05


class _Call:
    """A function on its way to the thread, and its answer on the way back."""

    __slots__ = ("_done", "_has_ended", "_waiting", "error", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._waiting = [function]  # until someone takes it out, who then is the only one
        self._done = threading.Lock()  # an Event takes twice as long
        self._done.acquire()
        self._has_ended = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._waiting.pop()()  # what it holds does not live until the next call
        except BaseException as error:  # the caller's, whatever it is
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
        """Return when it has run, or never will; a second interrupt does not wait for that."""
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
    """A thread that runs functions in the order in which they come.

    Waking it and being warm_up take tens of microseconds: it is for what is rare.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Calls = SimpleQueue()
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._is_closed = False
        self._thread = thread_cache.take()
        self._thread.start(partial(_serve, self._calls), name)

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Run on the thread; return what it returns, raise what it raises."""
        if self._is_its_own:
            return function()
        self.check_process()
        call = _Call(function)
        try:
            with self._lock:
                if self._is_closed:
                    raise DeviceError(f"{self._name}: the device is closed")
                self._calls.put(call)
            result: _Result = call.wait()
        except BaseException:  # an interrupt: what the caller gives up must not be done later
            call.abandon()
            raise
        return result

    def post(self, function: Callable[[], object]) -> None:
        """Run on the thread some time, and tell nobody: for finalizers, which may not wait."""
        if not self._is_closed:  # nobody would take it out again, nor what it holds
            self._calls.put(_Call(function))

    def close(self, last: Callable[[], object], *, is_clean: bool = True) -> None:
        """Run `last`, then let the thread go, where there is one; for others if it is clean."""
        with self._lock:
            if self._is_closed or not self.is_here:
                return
            self._is_closed = True
            call = _Call(last)
            if self._is_its_own:  # a finalizer may run anywhere
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
    def is_here(self) -> bool:
        """Whether this is the process that started the thread; a forked child has none."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        if not self.is_here:
            raise DeviceError(
                f"{self._name}: opened before a fork, which CUDA does not survive. "
                "Load the network after the fork, or start processes with 'spawn'"
            )
