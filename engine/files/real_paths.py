"""Paths that identify a file, whatever the current folder and however it is named."""

from __future__ import annotations

import os
from pathlib import Path


def real(path: str | Path) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a name from a list may contain a NUL
        return str(path)
