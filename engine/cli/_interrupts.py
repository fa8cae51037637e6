"""Handling of SIGINT (Ctrl-C) and SIGTERM.

Neither interrupts an import. While results are written, an interrupt is deferred until every output
has the results of the same pictures.
"""

from __future__ import annotations

import _thread
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from engine.concurrency import process_end

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MAX_IMPORT_SECONDS = 5.0  # importing a module may run a whole program
_RETRY_SECONDS = 0.02
# Modules that an exception would break, or that ignore it, as in weakref callbacks.
_WITHOUT_EXCEPTIONS = {"importlib._bootstrap", "weakref", "_weakrefset"}


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM, which service managers and containers send to end it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM into an exception as well, and keep both signals from interrupting an import.

    An interrupted import would leave a lock of Python's import system locked, and a thread that
    imports the same module would wait forever. Handlers installed by another program are kept. In
    the engine's own process, a second signal ends it at once, even during cleanup.
    """
    previous: dict[signal.Signals, Any] = {}
    if current_thread() is main_thread():
        for number, usual in process_end.DEFAULTS.items():
            found = signal.getsignal(number)
            if found in (usual, process_end.end_at_once):
                previous[number] = found
    handlers = {
        number: _Handler(ends_process=found is process_end.end_at_once)
        for number, found in previous.items()
    }
    for number, handler in handlers.items():
        signal.signal(number, handler)
    try:
        try:
            yield
        except Exception:
            # Code that was interrupted midway, such as argparse, may fail with another error.
            if raised := [number for number, each in handlers.items() if each.has_raised]:
                raise (Terminated if signal.SIGTERM in raised else KeyboardInterrupt) from None
            raise
        finally:
            while any(each.is_pending for each in handlers.values()):
                time.sleep(_RETRY_SECONDS)
    finally:
        for number, found in previous.items():
            signal.signal(number, found)


class _Handler:
    """A signal handler that raises an exception, or retries later where that would do harm."""

    def __init__(self, *, ends_process: bool) -> None:
        self._ends_process = ends_process
        self.has_raised = False
        self._since: float | None = None

    @property
    def is_pending(self) -> bool:
        return self._since is not None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self._since = since = self._since or now
        if _would_be_lost(frame) and now - since < _MAX_IMPORT_SECONDS:
            with suppress(RuntimeError):  # no thread can be started
                _thread.start_new_thread(_send_again, (number,))  # unlike Thread, takes no lock
                return
        self._since = None
        if self.has_raised and self._ends_process:
            process_end.end_at_once(number, frame)
        self.has_raised = True
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _send_again(number: int) -> None:
    time.sleep(_RETRY_SECONDS)
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        signal.pthread_kill(main_thread().ident or 0, number)  # also wakes a blocked main thread


def _would_be_lost(frame: FrameType | None) -> bool:
    """Return whether an exception would break an import or be lost in a weakref callback."""
    while frame is not None:
        if frame.f_globals.get("__name__") in _WITHOUT_EXCEPTIONS:
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """A context in which one interrupt can be deferred; a second one takes effect at once."""

    def __init__(self) -> None:
        self._previous = {number: signal.getsignal(number) for number in SIGNALS}
        self._is_deferring = False
        self._deferred: int | None = None

    def __enter__(self) -> Interrupts:
        for number, previous in self._previous.items():
            if callable(previous) and current_thread() is main_thread():
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, previous)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer an interrupt to the end of this block; exceptions of the block come first."""
        self._is_deferring = True
        try:
            yield
        finally:
            self._is_deferring, number, self._deferred = False, self._deferred, None
        if number is not None:
            self._handle(number, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous[signal.Signals(number)]
        if self._is_deferring and self._deferred is None:
            self._deferred = number
        elif callable(previous):
            previous(number, frame)
