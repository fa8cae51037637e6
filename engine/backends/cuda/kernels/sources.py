"""The text of the kernels, read from disk once in a process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent
_TILE_FOLDERS = ("conv/mma/", "conv/sm90/")  # each tile of these kernels is compiled by itself


@lru_cache(maxsize=1)
def kernels() -> Mapping[str, str]:
    """Return every text by its path, as in "ops/add.cu"; file names are unique."""
    found = sorted(each for end in ("cu", "cuh") for each in _FOLDER.rglob(f"*.{end}"))
    return {each.relative_to(_FOLDER).as_posix(): each.read_text("utf-8") for each in found}


@lru_cache(maxsize=1)
def by_name() -> Mapping[str, str]:
    """Return every text by the name of its file."""
    return {path.rpartition("/")[2]: text for path, text in kernels().items()}


def portable() -> Mapping[str, str]:
    """Return the texts of the kernels that run on every card, and their headers, by their paths."""
    return {p: text for p, text in kernels().items() if not p.startswith(_TILE_FOLDERS)}
