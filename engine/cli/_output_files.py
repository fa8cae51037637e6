"""Checks and names of output files: they replace no input, and other files only on request."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePath
from threading import Lock
from typing import Literal

from engine.cli import _stdin
from engine.errors import InputError
from engine.files.atomic import NewFile, check_stream, refuse_address, stream_number
from engine.files.naming import shown
from engine.files.real_paths import real
from engine.sources.media import Media

# What a run does with existing files: stop, replace them, or continue an earlier run.
Existing = Literal["refuse", "replace", "resume"]

HINT = "Name another, or add --overwrite"
HINT_WITH_RESUME = f"{HINT}, or --resume to continue a stopped run"
_OTHER_FILES = frozenset(  # in addition to videos and Pillow's picture formats
    (".svg", ".heic", ".heif", ".avif", ".jxl", ".json", ".jsonl", ".csv", ".txt", ".xml", ".zip")
)
_INPUT = ""  # stands for the option if a file is an input


class ReservedPaths:
    """The files that a run reads or writes, and that no other output may use.

    With `stdin`, inputs are still added while the run writes, and a file redirected to stdin is an
    input.
    """

    def __init__(self, inputs: Iterable[str | Path | None] = (), *, stdin: bool = False) -> None:
        self.has_stdin = stdin
        self.has_source = False  # whether stdin has named an existing source
        self.at_stake: set[str] = set()  # existing files that outputs may replace
        self.refused: set[str] = set()  # replaced files that must be restored
        self._users: dict[str, str] = {}
        self._lock = Lock()  # names arrive on another thread
        self._list = _stdin.redirected_file() if stdin else None
        for each in inputs:
            if each:
                self.add_input(each)

    def add_input(self, path: str | Path) -> None:
        """Add an input; refuse one that the run replaces."""
        where = real(path)
        with self._lock:
            user = self._users.setdefault(where, _INPUT)
            if user != _INPUT and where in self.at_stake:
                self.refuse(where)
                raise _read_error(user, path)

    def refuse(self, path: str | Path) -> None:
        """Mark a file that an output should not have replaced."""
        self.refused.add(real(path))

    def is_input(self, path: str | Path) -> bool:
        where = real(path)
        return self._users.get(where) == _INPUT or self._is_list(where)

    def is_new_output(self, path: str | Path) -> bool:
        """Return whether the run created this file."""
        where = real(path)
        with self._lock:  # another thread may be adding it to only one of the two
            return self._users.get(where, _INPUT) != _INPUT and where not in self.at_stake

    def take(self, option: str, path: str | Path) -> bool:
        """Reserve a path for an option; return False if this run already wrote it.

        A symbolic link counts itself, not its target: the link is replaced.
        """
        if self.is_input(path):
            raise _read_error(option, path)
        where = Path(real(Path(path).parent)) / Path(path).name
        return self._user_before(option, path, str(where)) is None

    def reserve(self, option: str, path: str) -> None:
        """Reserve a path for an option; refuse one that is read or that another option writes."""
        where = _real_output(path)
        if where == os.devnull:
            return
        user = self._user_before(option, path, where)
        if user not in (None, option):
            raise InputError(f"{user} and {option}: expected different files, got one")

    def _user_before(self, option: str, path: str | Path, where: str) -> str | None:
        with self._lock:
            user = self._users.get(where)
            if user == _INPUT or self._is_list(where):
                raise _read_error(option, path)
            if user is None:
                self._users[where] = option
                if self.has_stdin and os.path.isfile(where):  # noqa: PTH113 - fast
                    self.at_stake.add(where)
            return user

    def _is_list(self, where: str) -> bool:
        try:
            return self._list is not None and os.path.samestat(self._list, os.stat(where))  # noqa: PTH116
        except (OSError, ValueError):
            return False


def _real_output(path: str) -> str:
    """Return the identity of an output; for a stream (or `-`), of what it is connected to."""
    if os.name == "nt":
        return real(path)
    stream = 1 if path == "-" else stream_number(path)
    return real(path if stream is None else f"/dev/fd/{stream}")


def _read_error(option: str, path: str | Path) -> InputError:
    return InputError(f"{option} {shown(path)}: would replace a file that is read")


def check_output(
    option: str,
    path: str,
    reserved: ReservedPaths,
    *,
    overwrite: bool,
    hint: str = HINT,
    in_place: bool = False,
) -> None:
    """Reserve an output file and create its folder; refuse to replace an existing file.

    The folder must be writable, too, unless an existing file is written `in_place`.
    """
    refuse_address(path)
    refuse_stdout(option, path, "file")
    where = f"{option} {shown(path)}"
    target = Path(path)
    try:
        if target.is_dir():
            raise InputError(f"{where}: expected a file, got a folder")
        reserved.reserve(option, path)
        if (stream := stream_number(path)) is not None:
            check_stream(stream)
            return
        is_dangling = target.is_symlink() and not target.exists()
        if (target.is_file() or is_dangling) and not overwrite:
            raise InputError(f"{where}: exists already. {hint}")
        if not target.exists() or (target.is_file() and not in_place):
            written = Path(os.path.realpath(path)) if target.is_symlink() else target
            make_folder(option, str(written.parent))
    except OSError as error:  # its folder may be inaccessible
        raise InputError(f"{where}: cannot be written: {error.strerror}") from None


def refuse_stdout(option: str, path: str, expected: str) -> None:
    """Refuse `-`, which means stdout for other outputs, as the name of a file or folder."""
    if path == "-":
        raise InputError(f"{option} -: expected a {expected}: this output does not go to stdout")


def check_ending(option: str, path: str, ending: str) -> None:
    if Path(path).suffix.lower() != ending:
        raise InputError(f"{option} {shown(path)}: expected a name that ends in {ending}")


def is_named_like_file(target: str) -> bool:
    """Return whether a name has a file extension, so that no folder should have it."""
    from PIL import Image

    from engine.vision.extensions import VIDEO_EXTENSIONS

    endings = {*Image.registered_extensions(), *VIDEO_EXTENSIONS, *_OTHER_FILES}
    path = Path(target)
    return path.suffix.lower() in endings and not (path.is_dir() or target.endswith("/"))


def make_folder(option: str, path: str) -> Path:
    refuse_address(path)
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            reason = "there is a file of that name, or above it. Name another folder"
        raise InputError(f"{option} {shown(path)}: cannot create the folder: {reason}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{option} {shown(path)}: the folder is not writable")
    return folder


class OutputFolder:
    """A folder of output files that keep their names and replace others only on request."""

    def __init__(
        self,
        option: str,
        path: str,
        reserved: ReservedPaths,
        *,
        existing: Existing,
        hint: str,
    ) -> None:
        refuse_stdout(option, path, "folder")
        self._option = option
        self._hint = hint  # shown if a file exists
        self._where = f"{option} {shown(path)}"
        self._reserved = reserved
        self._existing = existing
        self._made: set[Path] = set()
        self.path = Path(path)
        self.is_new = not os.path.lexists(path)
        make_folder(option, path)

    def check(self, names: Iterable[str]) -> None:
        """Raise if one of these files is an input, or exists and may not be replaced."""
        if self.is_new:
            return
        files = [path for each in names if os.path.lexists(path := self.path / each)]
        for each in files:
            if self._reserved.is_input(each):
                raise InputError(f"{self._where}: would replace a file that is read: {shown(each)}")
        if files and self._existing == "refuse":
            count = "exists" if len(files) == 1 else f"and {len(files) - 1} more exist"
            raise InputError(f"{self._where}: {shown(files[0])} {count} already. {self._hint}")

    def refuse_pictures_here(self, found: Iterable[Media]) -> None:
        """Raise if the folder holds input pictures: later runs would read the outputs as well."""
        folders = {each.root or os.path.dirname(each.name) for each in found}  # noqa: PTH120
        if not self.is_new and real(self.path) in map(real, folders):
            raise InputError(
                f"{self._where}: is a folder that pictures are read from, and the next run would "
                "read what this one writes. Name another folder"
            )

    def new_file(self, name: str) -> NewFile:
        """Return a new file; a second one with this name in a run gets a number."""
        path = wanted = self.path / name
        if ".." in PurePath(name).parts:
            raise InputError(f"{self._option} {shown(path)}: would be outside of the folder")
        number = 1
        while not self._reserved.take(self._option, path):
            number += 1
            path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
        if path.parent not in self._made:
            make_folder(self._option, str(path.parent))
            self._made.add(path.parent)
        overwrite = self._existing != "refuse"
        return NewFile(path, overwrite=overwrite, follows_link=False, hint=self._hint)

    def has(self, name: str) -> bool:
        return not self.is_new and (self.path / name).exists()


def unused_path(path: Path) -> Path:
    """Return a path that does not exist by adding a number to this one."""
    number = 2
    while os.path.lexists(other := path.with_name(f"{path.stem}-{number}{path.suffix}")):
        number += 1
    return other


def is_folder_of(folder: Path, file: str) -> bool:
    return real(folder) == real(Path(file).parent)
