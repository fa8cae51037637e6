"""Hashes of files that are too large to read into memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BLOCK = 1 << 20


def digest(path: Path, algorithm: str) -> str:
    """Return the hexadecimal hash of a file."""
    result = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            result.update(block)
    return result.hexdigest()
