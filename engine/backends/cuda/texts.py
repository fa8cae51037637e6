"""The text of the kernels, read once in a process: files are many, and some disks are far."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_FOLDER = Path(__file__).with_name("kernels")


@lru_cache(maxsize=1)
def kernels() -> Mapping[str, str]:
    """By the name of the file, as in "add.cu" or "tensor/mma.cuh"."""
    found = sorted(each for end in ("cu", "cuh") for each in _FOLDER.rglob(f"*.{end}"))
    return {each.relative_to(_FOLDER).as_posix(): each.read_text("utf-8") for each in found}
