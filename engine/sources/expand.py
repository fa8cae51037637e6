"""Expand the names that a user gives (folders, patterns, lists) into pictures and videos."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.errors import InputError
from engine.files.naming import shown
from engine.sources import list_file
from engine.sources.media import Media, MediaKind, is_camera, is_url, media_of
from engine.vision.extensions import is_picture

STDIN = "-"


def expand(
    names: Iterable[str], *, recursive: bool = False, lines: Iterable[str] = ()
) -> Iterator[Media]:
    """Yield the media that the names refer to, lazily and in order; `lines` replaces the name `-`.

    A folder or pattern yields its pictures sorted by name, a .txt file the names in its lines.
    """
    for name in names:
        if name == STDIN:
            for line in list_file.parse_lines(lines):
                yield from _expand_name(line, recursive=recursive)
        else:
            yield from _expand_name(name, recursive=recursive)


def _expand_name(name: str, *, recursive: bool) -> Iterator[Media]:
    if not _is_list(name):
        yield from _expand_entry(name, recursive=recursive)
        return
    try:
        entries = list_file.read(name)
    except InputError as error:
        yield Media(name, MediaKind.BROKEN, str(error))
        return
    for entry in entries:
        if _is_list(entry):
            problem = f"{shown(name)}: names another list, {shown(entry)}"
            yield Media(entry, MediaKind.BROKEN, problem)
        else:
            yield from _expand_entry(entry, recursive=recursive)


def _is_list(name: str) -> bool:
    return name.lower().endswith(".txt") and not is_url(name) and not _is_folder(name)


def _expand_entry(name: str, *, recursive: bool) -> Iterator[Media]:
    if is_url(name) or is_camera(name):
        yield media_of(name)
    elif _is_folder(name):
        yield from _expand_folder(name, recursive=recursive)
    elif glob.has_magic(name) and not os.path.lexists(name):
        yield from _expand_pattern(name)
    else:
        yield media_of(name)


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # a NUL byte or too long a name, which reading it will report
        return False


def _expand_folder(name: str, *, recursive: bool) -> Iterator[Media]:
    errors: list[OSError] = []  # about folders that may not be read
    found = sorted(_pictures_in(name, errors, recursive=recursive))
    for error in errors:
        where = str(error.filename)
        problem = f"{shown(where)}: folder: cannot be read: {error.strerror}"
        yield Media(where, MediaKind.BROKEN, problem)
    if not found and not errors:
        hint = "" if recursive else " Look into its folders with --recursive."
        yield Media(name, MediaKind.BROKEN, f"{shown(name)}: folder: has no pictures.{hint}")
    for path in found:
        yield Media(path, MediaKind.PICTURE)


def _pictures_in(folder: str, errors: list[OSError], *, recursive: bool) -> Iterator[str]:
    for inner, _, files in os.walk(folder, onerror=errors.append):
        for file in files:
            if is_picture(file):
                yield os.path.join(inner, file)  # noqa: PTH118 - keeps ./x as the user wrote it
        if not recursive:
            return


def _expand_pattern(name: str) -> Iterator[Media]:
    try:
        matches = glob.glob(name, recursive=True)  # noqa: PTH207 - Path.glob refuses absolute ones
    except ValueError:  # a NUL byte
        matches = []
    found = sorted(path for path in matches if not Path(path).is_dir())
    if not found:
        problem = f"{shown(name)}: pattern: no file matches"
        yield Media(name, MediaKind.BROKEN, problem)
    for path in found:
        yield media_of(path)
