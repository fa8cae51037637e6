"""Signal handling while a process has nothing to clean up: before and after its command."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End the process with the status that a shell reports for the signal, without a traceback."""
    os._exit(128 + number)


def is_signal(status: int) -> bool:
    """Return whether an exit status means that a signal ended the command."""
    return status in {128 + number for number in DEFAULTS}


def leave(status: int) -> NoReturn:
    """End the process without shutting down the interpreter.

    Ray's threads may outlive an interrupted run, and crash during interpreter shutdown.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or missing
            stream.flush()
    os._exit(status)


def install() -> None:
    """Handle SIGINT and SIGTERM with end_at_once(), unless they are ignored or handled already."""
    for number, usual in DEFAULTS.items():
        if signal.getsignal(number) is usual:
            signal.signal(number, end_at_once)


def ignore_repeated(status: int) -> None:
    """Ignore the signal that ended the command while the interpreter shuts down.

    Python restores the system's handlers then, and the signal would replace the exit status.
    """
    for number in DEFAULTS:
        if status == 128 + number and signal.getsignal(number) is end_at_once:
            signal.signal(number, signal.SIG_IGN)
