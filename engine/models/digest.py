"""Hashes of files too large to hold."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BLOCK = 1 << 20


def digest(path: Path, algorithm: str) -> str:
    """Hexadecimal hash of a file."""
    found = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()
