"""One process at a time: a lock on a file, which the system frees when its holder dies."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WAIT_SECONDS = 0.1

_log = logging.getLogger("engine")


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Wait for the lock, hold it inside the with-block. The file stays: removing it would race."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _try(descriptor):
            _log.warning("%s: another process holds the lock; waiting", path)
            while not _try(descriptor):
                time.sleep(_WAIT_SECONDS)
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":
    import msvcrt

    def _try(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _try(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
