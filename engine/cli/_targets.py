"""Where outputs may go: never over an input or, unasked, an earlier output; checked at once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from engine.errors import InputError
from engine.vision.naming import shown

HINT = "Name another, or add --overwrite"


def check_file(option: str, path: str, inputs: Iterable[str], *, overwrite: bool) -> None:
    """Refuse a file that would replace something, or that has no folder."""
    where = f"{option} {shown(path)}"
    target = Path(path)
    if _real(path) in map(_real, inputs):
        raise InputError(f"{where}: is one of the pictures")
    if target.is_dir():
        raise InputError(f"{where}: expected a file, got a folder")
    if target.is_file() and not overwrite:
        raise InputError(f"{where}: exists already. {HINT}")
    if not target.parent.is_dir():
        raise InputError(f"{where}: there is no folder {shown(str(target.parent))!r}")
    if not os.access(target.parent, os.W_OK) and not target.exists():
        raise InputError(f"{where}: the folder may not be written to")


def make_folder(option: str, path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror
        raise InputError(f"{option} {shown(path)}: cannot be made a folder: {reason}") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{option} {shown(path)}: the folder may not be written to")
    return folder


class NewNames:
    """Hands out file names of a folder; none is an input's, none is handed out twice."""

    def __init__(self, folder: Path, inputs: Iterable[str], *, overwrite: bool) -> None:
        self._folder = folder
        self._overwrite = overwrite
        self._taken = {_real(name) for name in inputs}

    def place(self, name: str, *, source: str) -> Path:
        """`name` in the folder, with a number where it is taken; `source` is what it is about."""
        self._taken.add(_real(source))
        wanted = self._folder / name
        path, number = wanted, 1
        while self._is_taken(path):
            number += 1
            path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
        self._taken.add(_real(path))
        return path

    def _is_taken(self, path: Path) -> bool:
        is_there = os.path.lexists(path) and not self._overwrite
        return is_there or _real(path) in self._taken


def _real(path: str | Path) -> str:
    """A list may name what cannot be a path."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return str(path)
