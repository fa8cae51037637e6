"""A lock on a file that is written bit by bit, so that two runs do not write it at once."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from engine.errors import InputError
from engine.files.naming import shown


def lock(file: IO[Any], path: Path) -> None:
    """Lock an open file until it is closed; raise InputError if another run has locked it."""
    try:
        import fcntl
    except ImportError:  # Windows, where files that are open for writing cannot be replaced
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise busy(path) from None
    except OSError:  # a file system without locks
        return


def busy(path: Path) -> InputError:
    return InputError(f"{shown(path)}: another run writes it. Wait for its end")
