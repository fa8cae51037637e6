"""The lines that an earlier run wrote before it stopped."""

from __future__ import annotations

import csv
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from engine.errors import InputError
from engine.files import locks
from engine.files.atomic import NewFile, stream_number, unwritable
from engine.files.naming import escaped_bytes, shown
from engine.files.real_paths import real
from engine.sources.item import Item
from engine.sources.media import is_url

_log = logging.getLogger("engine")

_BLOCK = 1 << 20
_FOREIGN = "line {}: expected a line that this command writes"

Key = tuple[str, int | None]  # a picture's path as text, and the number of a frame


class Line(NamedTuple):
    """The content of a line: its picture, the number of objects, whether reading failed."""

    key: Key
    objects: int
    has_failed: bool = False


@dataclass
class EarlierLines:
    """The pictures that have lines in an output file, in order.

    A line without a line end is skipped: the run was killed while writing it. Lines of pictures
    that could not be read are skipped as well, so that they are retried.
    """

    path: Path
    has_groups: bool = False  # several lines for a picture, one after another
    size: int = 0  # bytes of the lines to keep, once skipped ones are removed
    _pictures: Counter[Key] = field(default_factory=Counter)
    _objects: Counter[Key] = field(default_factory=Counter)  # in each picture
    last: Key | None = None
    _real_folders: dict[str, str] = field(default_factory=dict)
    _example: str = ""  # a picture that has lines
    _is_continued: bool = False  # whether this run has one of the same pictures
    _latest: Key | None = None  # the last requested picture that has lines
    last_start: int = 0  # where the lines of the last picture begin
    is_torn: bool = False  # whether the run was killed while writing a line
    _file_size: int = 0  # size at the time of reading
    _left_out: list[tuple[int, int]] = field(default_factory=list)  # ranges of bytes
    _bytes_left_out: int = 0

    @classmethod
    def read(
        cls,
        option: str,
        path: Path,
        parse: Callable[[str], Line],
        *,
        starts: Sequence[str],
        head: str = "",
        has_groups: bool = False,
    ) -> EarlierLines | None:
        """Read the lines, or return None if there is no file.

        `parse` parses a line, or raises ValueError, KeyError or TypeError. `starts` are the
        possible beginnings of a first line. `head` is the first line, without its line end.
        """
        if stream_number(path) is not None or not path.is_file():
            return None
        earlier = cls(path, has_groups)
        where = f"{option} {shown(path)}"
        hint = "Name another file, or add --overwrite"
        try:
            with path.open("rb") as file:
                earlier._file_size = os.fstat(file.fileno()).st_size
                for number, line in enumerate(file, start=1):
                    text = line.decode("utf-8", "replace").removesuffix("\n")
                    if not line.endswith(b"\n"):
                        if number == 1 and not _may_be_cut(text, starts):
                            raise InputError(f"{where}: {_FOREIGN.format(number)}. {hint}")
                        earlier.is_torn = True
                        break
                    if head and number == 1:
                        if text != head:
                            raise InputError(f"{where}: line 1: expected {head}. {hint}")
                        earlier._keep(None, len(line))
                        continue
                    try:
                        found = parse(text)
                        hash(found.key)  # in a foreign file, a frame may be a list
                    except (ValueError, KeyError, TypeError, RecursionError, csv.Error):
                        raise InputError(f"{where}: {_FOREIGN.format(number)}. {hint}") from None
                    if found.has_failed:
                        earlier._leave_out(len(line))
                    else:
                        earlier._keep(found.key, len(line), found.objects)
        except OSError as error:
            raise InputError(f"{where}: cannot be read: {error.strerror}") from None
        return earlier

    def _same(self, key: Key) -> Key:
        """Return the same key for all spellings of a path."""
        text, frame = key
        if is_url(text):
            return key
        folder, name = os.path.split(text)
        if folder not in self._real_folders:
            self._real_folders[folder] = real(folder or ".")
        return os.path.join(self._real_folders[folder], name), frame  # noqa: PTH118

    def _keep(self, key: Key | None, size: int, objects: int = 0) -> None:
        if key is not None:
            self._example = self._example or key[0]
            key = self._same(key)
            self._objects[key] += objects
            if not (self.has_groups and key == self.last):
                self._pictures[key] += 1
                self.last, self.last_start = key, self.size
        self.size += size

    def _leave_out(self, size: int) -> None:
        start = self.size + self._bytes_left_out
        self._left_out.append((start, start + size))
        self._bytes_left_out += size

    def has(self, key: Key) -> bool:
        """Return whether a picture has lines. If it has several groups, each call consumes one.

        The lines of a picture that is named twice in a row form one group.
        """
        key = self._same(key)
        if self._continues(key):
            return True
        if not self._pictures[key]:
            return False
        self._is_continued = True
        self._pictures[key] -= 1
        self._latest = key
        return True

    def _continues(self, key: Key) -> bool:
        """Return whether the latest picture that has lines is requested again."""
        return self.has_groups and key == self._latest

    def may_lack(self, key: Key) -> bool:
        """Return whether these are the last lines, which may be incomplete."""
        key = self._same(key)
        self._is_continued = self._is_continued or key == self.last
        return key == self.last and self._pictures[key] == 1 and not self._continues(key)

    def is_last(self, key: Key) -> bool:
        """Return whether the last lines are those of a picture."""
        return self._same(key) == self.last

    def objects_in(self, key: Key) -> int | None:
        """Return the number of objects in the lines of a picture, or None if it has no lines."""
        return self._objects.get(self._same(key))

    def warn_of_others(self) -> None:
        """Warn if no line belongs to this run: relative paths depend on the folder."""
        if self._example and not self._is_continued:
            what = "%s: has lines of other pictures only, such as %s. Begun in another folder?"
            _log.warning(what, shown(self.path), shown(self._example))

    def check(self) -> None:
        """Raise if another run is writing the file, or has changed it since it was read."""
        with self._locked():
            pass

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.path.open("rb") as file:
            locks.lock(file, self.path)
            if os.fstat(file.fileno()).st_size != self._file_size:
                raise locks.busy(self.path)
            if locks.EXIST:
                yield
                return
        yield  # a system without these locks cannot replace an open file

    def remove_failures(self) -> None:
        """Rewrite the file without the lines of pictures that could not be read."""
        if not self._left_out:
            self.check()
            return
        try:
            with (
                self._locked(),  # held until the new file replaces the old one
                NewFile(self.path, overwrite=True) as new,
                self.path.open("rb") as old,
                new.part.open("wb") as out,
            ):
                for start, end in self._left_out:
                    _copy(old, out, start - old.tell())
                    old.seek(end)
                _copy(old, out, self.size - out.tell())
        except OSError as error:
            raise unwritable(self.path, error) from None
        self._left_out.clear()


def _may_be_cut(text: str, starts: Sequence[str]) -> bool:
    return any(text.startswith(each) or each.startswith(text) for each in starts)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0 and (block := source.read(min(size, _BLOCK))):
        target.write(block)
        size -= len(block)


def key_of(item: Item) -> Key:
    """Return the picture of an item as JSON lines name it."""
    name = item.frame.video if item.frame else item.name
    return escaped_bytes(name), item.frame.number if item.frame else None
