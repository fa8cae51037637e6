"""Paths that identify a file regardless of the current folder and of links."""

from __future__ import annotations

import os
from pathlib import Path


def real(path: str | Path) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a name from a list may contain a NUL
        return str(path)
