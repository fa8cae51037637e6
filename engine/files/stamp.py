"""The size, time and inode of a file, by which to notice that it has changed."""

from __future__ import annotations

import os
from typing import NamedTuple


class Stamp(NamedTuple):
    """Differs between two files, and between two contents of one file."""

    size: int
    modified: int  # in nanoseconds
    inode: int

    @classmethod
    def of(cls, about: os.stat_result) -> Stamp:
        """Return the stamp of a file that is read after this, so that a later change is noticed."""
        return cls(about.st_size, about.st_mtime_ns, about.st_ino)


NO_FILE = Stamp(-1, 0, 0)  # of a picture that has a name, but was not read from that path


def is_of_file(stamp: Stamp | None) -> bool:
    """Return whether something was read from the file that its path names."""
    return stamp is not None and stamp != NO_FILE
