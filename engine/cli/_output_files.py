"""Checks and names of output files, so that no output replaces an input or, unasked, any file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from engine.errors import InputError
from engine.files.atomic import NewFile
from engine.files.naming import shown

HINT = "Name another, or add --overwrite"
_INPUT = ""  # in place of the option that writes a file


class ReservedPaths:
    """The files that a run reads or writes, which no other output may use."""

    def __init__(self, inputs: Iterable[str | Path | None]) -> None:
        self._users = {_real(each): _INPUT for each in inputs if each}

    def add(self, path: str | Path) -> bool:
        """Reserve a path; return False if it was reserved before."""
        before = len(self._users)
        self._users.setdefault(_real(path), _INPUT)
        return len(self._users) > before

    def reserve(self, option: str, path: str) -> None:
        """Reserve a path for an option; refuse one that is read or that another option writes."""
        user = self._users.setdefault(_real(path), option)
        if user == _INPUT:
            raise InputError(f"{option} {shown(path)}: would replace a file that is read")
        if user != option:
            raise InputError(f"{user} and {option}: expected different files, got one")


def check_output(option: str, path: str, reserved: ReservedPaths, *, overwrite: bool) -> None:
    """Reserve an output file; refuse one that would replace a file or whose folder is missing."""
    where = f"{option} {shown(path)}"
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{where}: expected a file, got a folder")
    reserved.reserve(option, path)
    is_dangling = target.is_symlink() and not target.exists()
    if (target.is_file() or is_dangling) and not overwrite:
        raise InputError(f"{where}: exists already. {HINT}")
    if not target.parent.is_dir():
        raise InputError(f"{where}: there is no folder {shown(str(target.parent))!r}")
    if not os.access(target.parent, os.W_OK) and not target.exists():
        raise InputError(f"{where}: the folder is not writable")


def check_ending(option: str, path: str, ending: str) -> None:
    if Path(path).suffix.lower() != ending:
        raise InputError(f"{option} {shown(path)}: expected a name that ends in {ending}")


def make_folder(option: str, path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror
        raise InputError(f"{option} {shown(path)}: cannot create the folder: {reason}") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{option} {shown(path)}: the folder is not writable")
    return folder


class UniqueNames:
    """Unused file names in a folder; none is given out twice."""

    def __init__(self, folder: Path, reserved: ReservedPaths, *, overwrite: bool) -> None:
        self._folder = folder
        self._overwrite = overwrite
        self._reserved = reserved
        self._numbers: dict[str, int] = {}  # the last number appended to a name

    def new_file(self, name: str, *, source: str) -> NewFile:
        """Return a new file at path_for(), which takes another name if another run uses that."""

        def path() -> Path:
            return self.path_for(name, source=source)

        return NewFile(path(), overwrite=self._overwrite, another=path)

    def path_for(self, name: str, *, source: str) -> Path:
        """Return `name` in the folder, numbered if it is in use; never replace `source`."""
        self._reserved.add(source)
        wanted = self._folder / name
        path, number = wanted, self._numbers.get(name, 1)
        while not self._reserve(path):
            number += 1
            path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
            self._numbers[name] = number
        return path

    def _reserve(self, path: Path) -> bool:
        exists = os.path.lexists(path) and not self._overwrite
        return not exists and self._reserved.add(path)


def is_folder_of(folder: Path, file: str) -> bool:
    return _real(folder) == _real(Path(file).parent)


def _real(path: str | Path) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a name from a list may contain a NUL
        return str(path)
