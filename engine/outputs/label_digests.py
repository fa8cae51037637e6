"""Digests of the label files that runs have written into a folder.

They distinguish such files from labels that were made or corrected by hand. Corrected files are not
replaced, and their lines do not count as objects found by a run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from engine.concurrency.cached_property import cached_property
from engine.errors import InputError
from engine.files import locks
from engine.files.atomic import unwritable
from engine.files.regular import open_regular

FILE = ".engine-labels.jsonl"


class _Version(NamedTuple):
    digest: str
    objects: int | None  # unknown in a line of an earlier version


class LabelDigests:
    """The digests in one folder; the last entry for a name counts.

    A line with "done": false says that a run is about to replace a file: until the next line for
    this name, the file has this digest or that of the line before.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE

    def is_changed(self, name: str) -> bool:
        """Return whether the file exists and differs from what runs have written."""
        path = self._folder / name
        if not os.path.lexists(path):
            return False
        try:
            digest = _digest(path.read_bytes())
        except OSError:  # comparison is impossible
            return True
        return all(each.digest != digest for each in self._known.get(name, ()))

    def is_corrected(self, name: str) -> bool:
        """Return whether a file has been changed since a run wrote it, as far as that is known."""
        return name in self._known and self.is_changed(name)

    def objects_in(self, name: str) -> int | None:
        """Return how many objects a run has written to a file, or None if that is unknown.

        Later corrections of the file do not change the number.
        """
        path = self._folder / name
        known = self._known.get(name, frozenset())
        if not known or not os.path.lexists(path):
            return None
        if not self.is_changed(name):
            return _count(path.read_bytes())
        counts = {each.objects for each in known}
        return counts.pop() if len(counts) == 1 else None

    @contextmanager
    def writing(self, name: str, content: bytes) -> Iterator[None]:
        """Record a file that is written in this context, even if the run is killed meanwhile."""
        version = _Version(_digest(content), _count(content))
        if self._known.get(name) != frozenset((version,)):
            replaces = os.path.lexists(self._folder / name)
            self._add(name, version, is_done=not replaces)
        yield
        if self._known[name] != frozenset((version,)):
            self._add(name, version)

    def _add(self, name: str, version: _Version, *, is_done: bool = True) -> None:
        entry = {"labels": name, "sha256": version.digest, "objects": version.objects}
        entry |= {} if is_done else {"done": False}
        line = json.dumps(entry).encode() + b"\n"
        try:
            with self._path.open("ab+") as file, locks.held(file):
                file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
                if file.read(1) not in (b"", b"\n"):  # a run was killed while writing its line
                    line = b"\n" + line
                file.write(line)
        except OSError as error:
            raise unwritable(self._path, error) from None
        earlier = frozenset() if is_done else self._known.get(name, frozenset())
        self._known[name] = earlier | {version}

    @cached_property
    def _known(self) -> dict[str, frozenset[_Version]]:
        """The versions that a file may have, by name."""
        known: dict[str, frozenset[_Version]] = {}
        if os.path.lexists(self._path):
            with open_regular(self._path, InputError) as file:
                for line in file:
                    if entry := _parsed(line):
                        name, version, is_done = entry
                        earlier = frozenset() if is_done else known.get(name, frozenset())
                        known[name] = earlier | {version}
        return known


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _count(content: bytes) -> int:
    return content.count(b"\n")


def _parsed(line: bytes) -> tuple[str, _Version, bool] | None:
    """Return the entry of a line, or None if it is damaged."""
    try:
        entry = json.loads(line)
        objects = entry.get("objects")
        version = _Version(str(entry["sha256"]), objects if type(objects) is int else None)
        return str(entry["labels"]), version, entry.get("done", True) is not False
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
