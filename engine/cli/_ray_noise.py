"""Keep a false alarm of Ray from the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

_STDERR = 2
_CHUNK = 1 << 16
# Ray warns that a lost worker could not be replaced if its arguments were lost. They are not: Ray
# Data and the run hold references to them, and lost workers are replaced.
_FALSE_ALARM = b"has constructor arguments in the object store and max_restarts > 0"


@contextmanager
def without_false_alarm() -> Iterator[None]:
    """Filter the lines that this process writes to stderr, including those of Ray's C++ code."""
    try:
        original = os.dup(_STDERR)
    except OSError:  # stderr is closed
        yield
        return
    reader, writer = os.pipe()
    sys.stderr.flush()
    os.dup2(writer, _STDERR)
    os.close(writer)
    thread = Thread(target=_filter, args=(reader, original), name="engine-stderr", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os.dup2(original, _STDERR)  # closes the last write end, unless a child has inherited it
        thread.join(timeout=1.0)
        if not thread.is_alive():
            os.close(original)


def _filter(reader: int, target: int) -> None:
    rest = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while chunk := pipe.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if _FALSE_ALARM not in line:
                    _write(target, line + b"\n")
    _write(target, rest)


def _write(target: int, content: bytes) -> None:
    with suppress(OSError):  # a closed pipe or a full disk, as in print_stderr()
        while content:
            content = content[os.write(target, content) :]
