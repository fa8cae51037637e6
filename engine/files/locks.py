"""Locks on incrementally written files, so that two runs do not write one at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from engine.errors import InputError
from engine.files.naming import shown

try:  # at module level, so that no import delays locking an open file
    import fcntl
except ImportError:  # Windows, where files that are open for writing cannot be replaced
    fcntl = None  # type: ignore[assignment]

EXIST = fcntl is not None


def lock(file: IO[Any], path: Path) -> None:
    """Lock an open file until it is closed; raise InputError if another run has locked it.

    If another run has replaced the file since it was opened, it counts as locked, too.
    """
    try:
        _flock(file, waits=False)
        is_replaced = not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        is_replaced = True
    except BlockingIOError:
        raise busy(path) from None
    if is_replaced:
        raise busy(path)


@contextmanager
def held(file: IO[Any]) -> Iterator[None]:
    """Lock an open file briefly, waiting for another process that holds the lock."""
    _flock(file, waits=True)
    try:
        yield
    finally:
        _flock(file, waits=True, unlocks=True)


def _flock(file: IO[Any], *, waits: bool, unlocks: bool = False) -> None:
    if fcntl is None:
        return
    how = fcntl.LOCK_UN if unlocks else fcntl.LOCK_EX
    try:
        fcntl.flock(file.fileno(), how if waits else how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        return


def busy(path: Path) -> InputError:
    return InputError(f"{shown(path)}: another run is writing it. Wait until it ends")
