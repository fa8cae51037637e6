"""The size, time and inode of a file, used to detect changes."""

from __future__ import annotations

import os
from typing import NamedTuple


class Stamp(NamedTuple):
    """A stamp that differs between two files, and between two contents of one file."""

    size: int
    modified: int  # in nanoseconds
    inode: int

    @classmethod
    def of(cls, about: os.stat_result) -> Stamp:
        """Return the stamp of a file, taken before reading so that later changes are detected."""
        return cls(about.st_size, about.st_mtime_ns, about.st_ino)


NO_FILE = Stamp(-1, 0, 0)  # for a picture with a name that was not read from that path


def is_of_file(stamp: Stamp | None) -> bool:
    """Return whether the stamp belongs to a file, so that its path can be read again."""
    return stamp is not None and stamp != NO_FILE
