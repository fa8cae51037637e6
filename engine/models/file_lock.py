"""Locks between processes, which the operating system releases when their holder dies."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_SECONDS = 0.1

_log = logging.getLogger("engine")


@contextmanager
def hold_if_free(path: Path) -> Iterator[bool]:
    """Try to hold the lock inside a with block, without waiting; tell whether it is held."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` inside a with block, after waiting for it.

    The file is not removed, because another process may have opened it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _try_lock(descriptor):
            _log.warning("%s: another process holds the lock; waiting", path)
            while not _try_lock(descriptor):
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
