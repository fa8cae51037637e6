"""From the names a user gives to places: folders, patterns and lists are taken apart."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.errors import InputError
from engine.files.naming import shown
from engine.sources import kinds, listing
from engine.sources.kinds import Kind, Place, place_of
from engine.vision.extensions import is_picture

STDIN = "-"


def places(
    names: Iterable[str], *, recursive: bool = False, lines: Iterable[str] = ()
) -> Iterator[Place]:
    """What the names stand for, lazily and in order; `lines` are the names that `-` stands for.

    A folder or pattern gives its pictures sorted by name, a .txt file what its lines name.
    """
    for name in names:
        if name == STDIN:
            for line in listing.entries(lines):
                yield from _taken_apart(line, recursive=recursive)
        else:
            yield from _taken_apart(name, recursive=recursive)


def _taken_apart(name: str, *, recursive: bool) -> Iterator[Place]:
    if not _is_list(name):
        yield from _not_a_list(name, recursive=recursive)
        return
    try:
        entries = listing.read(name)
    except InputError as error:
        yield Place(name, Kind.BROKEN, str(error))
        return
    for entry in entries:
        if _is_list(entry):
            problem = f"{shown(name)}: names another list, {shown(entry)}"
            yield Place(entry, Kind.BROKEN, problem)
        else:
            yield from _not_a_list(entry, recursive=recursive)


def _is_list(name: str) -> bool:
    return name.lower().endswith(".txt") and not kinds.is_address(name) and not _is_folder(name)


def _not_a_list(name: str, *, recursive: bool) -> Iterator[Place]:
    if kinds.is_address(name) or kinds.is_camera(name):
        yield place_of(name)
    elif _is_folder(name):
        yield from _of_folder(name, recursive=recursive)
    elif glob.has_magic(name) and not os.path.lexists(name):
        yield from _of_pattern(name)
    else:
        yield place_of(name)


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # a NUL byte, or a name too long: reading it says so
        return False


def _of_folder(name: str, *, recursive: bool) -> Iterator[Place]:
    closed: list[OSError] = []  # folders that may not be read
    found = sorted(_pictures_in(name, closed, recursive=recursive))
    for error in closed:
        where = str(error.filename)
        problem = f"{shown(where)}: folder: cannot be read: {error.strerror}"
        yield Place(where, Kind.BROKEN, problem)
    if not found and not closed:
        hint = "" if recursive else " Look into its folders with --recursive."
        yield Place(name, Kind.BROKEN, f"{shown(name)}: folder: has no pictures.{hint}")
    for path in found:
        yield Place(path, Kind.PICTURE)


def _pictures_in(folder: str, closed: list[OSError], *, recursive: bool) -> Iterator[str]:
    for inner, _, files in os.walk(folder, onerror=closed.append):
        for file in files:
            if is_picture(file):
                yield os.path.join(inner, file)  # noqa: PTH118 - ./x stays as it was written
        if not recursive:
            return


def _of_pattern(name: str) -> Iterator[Place]:
    try:
        matches = glob.glob(name, recursive=True)  # noqa: PTH207 - Path.glob refuses absolute ones
    except ValueError:  # a NUL byte
        matches = []
    found = sorted(path for path in matches if not Path(path).is_dir())
    if not found:
        problem = f"{shown(name)}: pattern: nothing is named like this"
        yield Place(name, Kind.BROKEN, problem)
    for path in found:
        yield place_of(path)
