"""A record in a folder of outputs: which name belongs to which picture, for runs that resume.

A line without a picture names a file, such as predictions.jpg, that searches skip. A line with
"done": false marks incomplete outputs: a run was to replace them but did not, or stopped inside a
video. The output "." with "done": false marks all outputs in the folder, for a run that does not
know in advance which files it replaces; without "done" it removes this mark.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from itertools import count
from pathlib import Path, PurePath
from typing import IO, NamedTuple

from engine.errors import InputError
from engine.files import locks
from engine.files.atomic import unwritable
from engine.files.naming import shown
from engine.files.real_paths import real
from engine.files.regular import open_regular
from engine.outputs.file_names import suffix_of
from engine.sources.media import is_url

FILE = ".engine-outputs.jsonl"

_log = logging.getLogger("engine")
_ALL = "."  # stands for all outputs in the folder
_NOTHING = ("nothing",)  # what a folder holds for a file that was restored
_PIXELS = {"pictures", "crops"}
HIDDEN = "without "  # prefix of the classes that pictures hide
_LABELS, _FOUND = "labels", "labels of others"  # the latter existed before the name was claimed


class Owned(NamedTuple):
    """The name of outputs, and the picture, video or archive that they belong to, if any."""

    name: str
    picture: str
    is_done: bool = True
    holds: tuple[str, ...] = ()  # kinds of outputs in the folder; unknown in older records
    source: str = ""  # the source of a single file, such as that of -o FILE, if known

    def may_have(self, what: str) -> bool:
        """Return whether a run has or may have written pictures, crops or labels of this name."""
        return bool(self.picture) and (what in self.holds or not self.holds)


def add_file(
    path: Path, holds: tuple[str, ...] = (), *, source: str = "", is_done: bool = True
) -> None:
    """Record a file in its folder, so that searches for pictures leave it out."""
    owned = Owned(path.name, "", is_done, source=identity(source) if source else "")
    OutputRecord(str(path.parent), _name_of, holds).claim(owned)


def source_of_file(path: Path) -> str:
    """Return the identity of the source of a file of add_file(), or "" if that is unknown."""
    record, owned = OutputRecord(str(path.parent), _name_of), Owned(path.name, "")
    return record.owners.get(_name_of(owned), owned).source


def identity(name: str, real_of: Callable[[str], str] = real) -> str:
    """Return a path that does not depend on the current folder or on links to folders."""
    if is_url(name):
        return name
    folder, base = os.path.split(name)
    return os.path.join(real_of(folder or "."), base)  # noqa: PTH118


def forget_file(path: Path) -> None:
    """Record that a file of add_file() is no longer an output; lines are only ever added."""
    OutputRecord(str(path.parent), _name_of, _NOTHING).claim(Owned(path.name, ""))


def warn_of_other_classes(name: str) -> None:
    """Warn that a resumed run replaces pictures because of what they hide."""
    _log.warning(
        "%s: an earlier run hid no or other classes here; these outputs, and others like them, are "
        "rewritten. What this run does not hide becomes visible, and later edits are lost",
        shown(name),
    )


def does_file_show_more(path: Path, holds: tuple[str, ...] = ()) -> bool:
    """Return whether an earlier run hid less, or other classes, in a file of add_file()."""
    return OutputRecord(str(path.parent), _name_of, holds).shows_more(Owned(path.name, ""))


def is_file_due(path: Path, holds: tuple[str, ...] = ()) -> bool:
    """Return whether a run that should have written a file of add_file() did not complete it."""
    record, owned = OutputRecord(str(path.parent), _name_of, holds), Owned(path.name, "")
    return record.is_due(owned) or record.shows_more(owned)


def _name_of(owned: Owned) -> str:
    return f"{owned.name}\n{owned.picture}"


def owners_in(folder: str) -> list[Owned]:
    """Return a folder's record for a search; warn if it cannot be read."""
    try:
        return list(OutputRecord(folder, _name_of).owners.values())
    except InputError as error:
        _log.warning("%s. What earlier runs wrote is not known", str(error).removesuffix("."))
        return []


def files_in(folder: str) -> Set[str]:
    """Return the names of the files in a folder that add_file() has recorded."""
    owners = owners_in(folder)
    return {each.name for each in owners if not each.picture and each.holds != _NOTHING}


def warn_of_results(folder: str, count: int, hint: str) -> None:
    what = "%s: pictures that another run wrote are skipped: %d. %s"
    _log.warning(what, shown(folder), count, hint)


def labels_in(folder: str) -> dict[str, str]:
    """Return the pictures of the label files in a folder that runs have written, by their names.

    The last line for a name counts, and the last name for a picture.
    """
    numbers = count()
    try:  # a distinct key for each line keeps their order
        record = OutputRecord(folder, lambda _: str(next(numbers)))
    except InputError:  # owners_in() has warned
        return {}
    pictures: dict[str, str] = {}
    names: dict[str, str] = {}
    for each in record.owners.values():
        if each.picture and each.is_done:
            pictures[each.name] = each.picture if each.may_have(_LABELS) else ""
            names[each.picture] = each.name
    return {name: each for name, each in pictures.items() if names.get(each) == name}


class OutputRecord:
    """The lines of one folder's record. If a name has several lines, the last one counts.

    Several runs may add lines concurrently. A line without a line end is ignored: its run was
    killed before it wrote a file of that name.
    """

    def __init__(
        self, folder: str, key_of: Callable[[Owned], str], holds: tuple[str, ...] = ()
    ) -> None:
        """Read the record; `key_of` gives equal keys to outputs that cannot both exist.

        `holds` names what the run writes: pictures, crops or labels.
        """
        self._folder = real(folder)
        self._path = Path(folder) / FILE
        self._key_of = key_of
        self.holds = holds
        self._hidden = {each for each in holds if each.startswith(HIDDEN)}
        self._relative_folders: dict[str, str] = {}
        self._size = self._lines = 0  # bytes and lines read so far
        self.owners: dict[str, Owned] = {}
        self._under_other_names: dict[str, list[Owned]] = {}  # by pictures to be replaced
        self._of_others: dict[str, Owned] = {}  # added by other runs since this one began
        self._reopened: set[str] | None = None  # keys that a run with known names may replace
        self._tells_nothing = not os.path.lexists(self._path) and _has_files(folder)
        if os.path.lexists(self._path):
            with open_regular(self._path, InputError) as file:
                self._read_on(file)

    def claim(self, owned: Owned, *, is_written: bool = False) -> None:
        """Add a line unless it exists; refuse a name that another run has taken meanwhile.

        Existing labels count as foreign, unless the run has just written them.
        """
        key = self._key_of(owned)
        is_written = is_written or self.is_due(owned)
        owned = self._with_holds(owned, is_written=is_written)
        if self._says(owned):
            return
        try:
            with self._path.open("ab+") as file, locks.held(file):
                if os.fstat(file.fileno()).st_size != self._size:
                    self._of_others.update(self._read_on(file))
                other = self._of_others.get(key, owned)
                if other.picture != owned.picture:
                    raise self._taken_error(other)
                owned = self._with_holds(owned, is_written=is_written)
                if self._says(owned):  # another run has added the same line
                    return
                self._add(file, [*self._under_other_names.pop(owned.picture, ()), owned])
        except OSError as error:
            raise unwritable(self._path, error) from None

    def reopen(self, named: Iterable[Owned], archives: tuple[str, ...]) -> None:
        """Mark the existing outputs of these pictures and archives as not done.

        If another picture owns a name, it keeps its outputs until they are replaced.
        """
        wanted = {self._key_of(each): each for each in named}
        if not (os.path.lexists(self._path) or any(map(self.has_file, wanted.values()))):
            return
        pictures = {each.picture for each in wanted.values()}
        members = tuple(f"{each}#" for each in archives)
        with self._appending() as file:
            earlier = [
                each
                for each in self.owners.values()
                if each.picture in pictures or each.picture.startswith(members)
            ]
            unknown = [
                self._with_holds(each)
                for key, each in wanted.items()
                if key not in self.owners and self.has_file(each)
            ]
            for each in earlier:
                if each.is_done and self._key_of(each) not in wanted:
                    self._under_other_names.setdefault(each.picture, []).append(each)
            done = (each for each in (*earlier, *unknown) if each.is_done)
            self._add(file, [each._replace(is_done=False) for each in done])

    def reopen_all(self) -> bool:
        """Mark all existing outputs as not done; return whether another run had already done so."""
        if not (os.path.lexists(self._path) or _has_files(self._folder)):
            return False
        with self._appending() as file:
            was_open = self._reopened is not None
            self._add(file, [Owned(_ALL, "", is_done=False)])
        return was_open

    def close_all(self) -> None:
        """Record that a run that had reopened all outputs is over."""
        if os.path.lexists(self._path):
            with self._appending() as file:
                if self._reopened is not None:
                    self._add(file, [Owned(_ALL, "")])

    def is_due(self, owned: Owned) -> bool:
        """Return whether a run that should have replaced the outputs of a picture did not."""
        key = self._key_of(owned)
        owner = self.owners.get(key)
        if owner is None:
            return self._reopened is not None and self.has_file(owned)
        return owner.picture == owned.picture and (not owner.is_done or self._is_reopened(key))

    def _is_reopened(self, key: str) -> bool:
        return self._reopened is not None and key in self._reopened

    def _says(self, owned: Owned) -> bool:
        """Return whether the last line about these outputs says this."""
        key = self._key_of(owned)
        return self.owners.get(key) == owned and not self._is_reopened(key)

    def shows_more(self, owned: Owned) -> bool:
        """Return whether an earlier run hid less, or other classes, in its pictures."""
        owner = self.owners.get(self._key_of(owned))
        if owner is None and self._hidden and (path := self._unknown_pixels(owned)):
            raise InputError(
                f"{shown(path)}: no record tells whether --blur or --pixelate hid anything in it. "
                "Name another place, or use --overwrite"
            )
        if owner is None or owner.picture != owned.picture:
            return False
        holds = {*owner.holds}
        has_pixels = not owner.picture or not _PIXELS.isdisjoint(holds)
        return has_pixels and not self._hidden <= holds

    def _unknown_pixels(self, owned: Owned) -> Path | None:
        """Return an annotated copy, or a folder that may hold crops, that no line mentions."""
        from engine.sources.video_writer import extension_for

        if "crops" in self.holds and self._tells_nothing:
            return self._path.parent
        endings = (
            (suffix_of(owned.picture), extension_for(owned.picture)) if owned.picture else ("",)
        )
        names = (owned.name + each for each in endings if self._has(owned, each))
        return next((self._path.parent / each for each in names), None)

    def _with_holds(self, owned: Owned, *, is_written: bool = True) -> Owned:
        """Add what earlier runs have written under this name; keep it unknown if it was."""
        earlier = self.owners.get(self._key_of(owned), owned)
        holds = set(self.holds)
        if not is_written and _LABELS in holds - {*earlier.holds} and self._has(owned, ".txt"):
            holds = holds - {_LABELS} | {_FOUND}
        if earlier.picture and earlier is not owned:
            before = {*earlier.holds}
            if _PIXELS & holds and (is_written or self.shows_more(owned)):
                before = {each for each in before if not each.startswith(HIDDEN)}
            holds = holds | before if before else set()
        return owned._replace(holds=tuple(sorted(holds)))

    def has_file(self, owned: Owned) -> bool:
        """Return whether labels or an annotated copy with this name exist."""
        return self._has(owned, ".txt") or self._has(owned, suffix_of(owned.picture))

    def _has(self, owned: Owned, ending: str) -> bool:
        return os.path.lexists(self._path.parent / (owned.name + ending))

    def _add(self, file: IO[bytes], added: Iterable[Owned]) -> None:
        """Write lines after the last complete one, in a single write."""
        lines = []
        for each in added:
            line: dict[str, object] = {"output": each.name}
            if each.picture:
                line["picture"] = self._relative(each.picture)
            if each.source:
                line["source"] = self._relative(each.source)
            if not each.is_done:
                line["done"] = False
            if each.holds:
                line["holds"] = each.holds
            lines.append(json.dumps(line).encode() + b"\n")
            self._take_in(each)
        if lines:
            file.truncate(self._size)
            file.write(b"".join(lines))
            file.flush()
            self._size = file.tell()
            self._lines += len(lines)

    @contextmanager
    def _appending(self) -> Iterator[IO[bytes]]:
        """Open the record for appending, after reading what others have added."""
        try:
            with self._path.open("ab+") as file, locks.held(file):
                self._read_on(file)
                yield file
        except OSError as error:
            raise unwritable(self._path, error) from None

    def _read_on(self, file: IO[bytes]) -> dict[str, Owned]:
        """Read the complete lines that were added, and return their content by key."""
        file.seek(self._size)
        added = {}
        for line in file.read().split(b"\n")[:-1]:
            self._lines += 1
            owned = self._parsed(line)
            key = self._take_in(owned)
            if key is not None:
                added[key] = owned
            self._size += len(line) + 1
        return added

    def _take_in(self, owned: Owned) -> str | None:
        """Apply a line; return the key of its outputs, or None if it is about all outputs."""
        if owned.name == _ALL:
            self._reopened = None if owned.is_done else {*self.owners}
            return None
        key = self._key_of(owned)
        self.owners[key] = owned
        if self._reopened is not None:
            self._reopened.discard(key)
        return key

    def _parsed(self, line: bytes) -> Owned:
        try:
            entry = json.loads(line)
            name = entry["output"]
            is_inside = not PurePath(name).is_absolute() and ".." not in PurePath(name).parts
            if not (name and is_inside and b"\0" not in os.fsencode(name)):
                raise ValueError("no name of a file in this folder")
            is_done = entry.get("done", True) is not False
            holds = tuple(map(str, entry.get("holds", ())))
            picture, source = (
                self._absolute(path) if (path := entry.get(key, "")) else ""
                for key in ("picture", "source")
            )
            return Owned(name, picture, is_done, holds, source)
        except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
            where = f"{shown(self._path)}: line {self._lines}"
            hint = "Remove this file: then names alone tell which pictures are done"
            raise InputError(f"{where}: expected an output and its picture. {hint}") from None

    def _taken_error(self, other: Owned) -> InputError:
        where = shown(self._path.parent / other.name)
        problem = f"another run has taken this name, for {shown(other.picture)}"
        return InputError(f"{where}: {problem}. Run again with --resume: it takes another name")

    def _relative(self, picture: str) -> str:
        """Return a path that stays valid if the folders of pictures and outputs move together."""
        if is_url(picture):
            return picture
        folder, name = os.path.split(picture)
        if folder not in self._relative_folders:
            try:
                self._relative_folders[folder] = os.path.relpath(folder, self._folder)
            except ValueError:  # on different drives
                self._relative_folders[folder] = folder
        return os.path.join(self._relative_folders[folder], name)  # noqa: PTH118

    def _absolute(self, picture: str) -> str:
        if is_url(picture):
            return picture
        return os.path.normpath(os.path.join(self._folder, picture))  # noqa: PTH118


def _has_files(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entries)
    except OSError:  # the folder does not exist
        return False
