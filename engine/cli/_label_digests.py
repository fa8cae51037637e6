"""Digests of the label files that runs have written into a folder.

They tell such files from labels that somebody made or corrected since: those are not replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cached_property
from pathlib import Path

from engine.errors import InputError
from engine.files import locks
from engine.files.atomic import unwritable
from engine.files.regular import open_regular

FILE = ".engine-labels.jsonl"


class LabelDigests:
    """The digests in one folder; the last one of a name counts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE

    def is_changed(self, name: str) -> bool:
        """Tell whether there is a file that is not as a run has written it."""
        path = self._folder / name
        if not os.path.lexists(path):
            return False
        try:
            return self._known.get(name) != _digest(path.read_bytes())
        except OSError:  # it cannot be compared
            return True

    def add(self, name: str, content: bytes) -> None:
        """Record a file that is complete. One whose run was killed before this is nobody's."""
        digest = _digest(content)
        if self._known.get(name) == digest:
            return
        line = json.dumps({"labels": name, "sha256": digest}).encode() + b"\n"
        try:
            with self._path.open("ab+") as file, locks.held(file):
                file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
                if file.read(1) not in (b"", b"\n"):  # a run was killed within its line
                    line = b"\n" + line
                file.write(line)
        except OSError as error:
            raise unwritable(self._path, error) from None
        self._known[name] = digest

    @cached_property
    def _known(self) -> dict[str, str]:
        if not os.path.lexists(self._path):
            return {}
        with open_regular(self._path, InputError) as file:
            return dict(each for line in file for each in _parsed(line))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _parsed(line: bytes) -> list[tuple[str, str]]:
    """Return the entry of a line; a damaged one tells of no file."""
    try:
        entry = json.loads(line)
        return [(str(entry["labels"]), str(entry["sha256"]))]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
