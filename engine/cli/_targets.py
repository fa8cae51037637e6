"""Where outputs may go: never over a file of this run or, unasked, an earlier one's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from engine.errors import InputError
from engine.files.atomic import NewFile
from engine.files.naming import shown

HINT = "Name another, or add --overwrite"
_READ = ""  # by no option


class Taken:
    """The files that a run reads and writes: no output may be one of them."""

    def __init__(self, inputs: Iterable[str | Path | None]) -> None:
        self._users = {_real(each): _READ for each in inputs if each}

    def add(self, path: str | Path) -> bool:
        """Whether it was not taken before."""
        before = len(self._users)
        self._users.setdefault(_real(path), _READ)
        return len(self._users) > before

    def claim(self, option: str, path: str) -> None:
        """Refuse a file that is read, or that another option writes."""
        user = self._users.setdefault(_real(path), option)
        if user == _READ:
            raise InputError(f"{option} {shown(path)}: would replace a file that is read")
        if user != option:
            raise InputError(f"{user} and {option}: expected different files, got one")


def check_file(option: str, path: str, taken: Taken, *, overwrite: bool) -> None:
    """Refuse a file that would replace something, or that has no folder."""
    where = f"{option} {shown(path)}"
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{where}: expected a file, got a folder")
    taken.claim(option, path)
    is_dangling = target.is_symlink() and not target.exists()
    if (target.is_file() or is_dangling) and not overwrite:
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
    """Hands out file names of a folder; none is taken, none is handed out twice."""

    def __init__(self, folder: Path, taken: Taken, *, overwrite: bool) -> None:
        self._folder = folder
        self._overwrite = overwrite
        self._taken = taken
        self._numbers: dict[str, int] = {}  # the last one that a name got

    def new_file(self, name: str, *, source: str) -> NewFile:
        """One at place(); other runs may write into this folder, too."""

        def place() -> Path:
            return self.place(name, source=source)

        return NewFile(place(), overwrite=self._overwrite, another=place)

    def place(self, name: str, *, source: str) -> Path:
        """`name` in the folder, with a number where it is taken; `source` is what it is about."""
        self._taken.add(source)
        wanted = self._folder / name
        path, number = wanted, self._numbers.get(name, 1)
        while not self._take(path):
            number += 1
            path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
            self._numbers[name] = number
        return path

    def _take(self, path: Path) -> bool:
        is_there = os.path.lexists(path) and not self._overwrite
        return not is_there and self._taken.add(path)


def is_folder_of(folder: Path, file: str) -> bool:
    return _real(folder) == _real(Path(file).parent)


def _real(path: str | Path) -> str:
    """A list may name what cannot be a path."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return str(path)
