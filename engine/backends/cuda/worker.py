"""One thread that owns what may be touched from one thread only; others hand it functions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from engine.errors import DeviceError

_Result = TypeVar("_Result")


class _Call:
    """A function on its way to the thread, and its answer on the way back."""

    __slots__ = ("_done", "_function", "error", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._done = threading.Lock()  # an Event takes twice as long
        self._done.acquire()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        assert self._function is not None
        try:
            self.result = self._function()
        except BaseException as error:  # the caller's, whatever it is
            self.error = error
        finally:
            self._function = None  # what it holds must not live until the next call
            self._done.release()

    def wait(self) -> Any:
        self._done.acquire()
        if self.error is not None:
            raise self.error
        return self.result


class Worker:
    """A thread that runs functions in the order in which they come.

    Waking it and being woken take tens of microseconds: it is for what is rare.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._is_closed = False
        # A daemon: the interpreter joins other threads before it tells anyone that it ends.
        self._thread = threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Run on the thread; return what it returns, raise what it raises."""
        if threading.get_ident() == self._thread.ident:
            return function()
        self.check_process()
        call = _Call(function)
        with self._lock:
            if self._is_closed:
                raise DeviceError(f"{self._name}: the device is closed")
            self._calls.put(call)
        result: _Result = call.wait()
        return result

    def post(self, function: Callable[[], object]) -> None:
        """Run on the thread some time, and tell nobody: for finalizers, which may not wait."""
        if not self._is_closed:  # nobody would take it out again, nor what it holds
            self._calls.put(_Call(function))

    def close(self, last: Callable[[], object]) -> None:
        """Run `last`, then end the thread, where there is one."""
        with self._lock:
            if self._is_closed or not self.is_here:
                return
            self._is_closed = True
            call = _Call(last)
            self._calls.put(call)
            self._calls.put(None)
        self._thread.join()
        call.wait()

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


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call
