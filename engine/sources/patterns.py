"""Patterns with *, ?, [abc] and **, such as cam*/day[12]/*.jpg."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from engine.files.walk import walk

_NO_MATCH = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_ENDS_ANYWHERE = re.compile(r"(^|/)\*\*(/\*)*$")


def matches(pattern: str) -> tuple[set[str], list[OSError]]:
    """Return the paths that match, and errors about the folders that cannot be read.

    Unlike in `glob`, `**` does not follow links to folders, which may form cycles.
    """
    errors: list[OSError] = []
    drive, path = os.path.splitdrive(pattern)
    top = f"{drive}/" if path.startswith("/") else drive
    try:
        found = set(_matches(top, path.lstrip("/").split("/"), errors))
    except (ValueError, RecursionError):  # a NUL byte, or a thousand nested folders
        found = set()
    return found, [each for each in errors if each.errno not in _NO_MATCH]


def matches_all(pattern: str) -> bool:
    """Return whether a pattern descends into all folders and matches everything, as a/** does."""
    return bool(_ENDS_ANYWHERE.search(pattern))


def fixed_folder(pattern: str) -> str:
    """Return the folders before the first one with a wildcard."""
    parts = pattern.split("/")
    fixed = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")


def goes_deeper(pattern: str) -> bool:
    """Return whether a pattern can match anything below the top folder."""
    return "/" in pattern or pattern == "**"


def fits(path: str, pattern: str) -> bool:
    """Return whether a pattern matches a path by the rules of matches(), without file access."""
    return _fits(path.split("/"), _parts(pattern))


@lru_cache(maxsize=64)
def _parts(pattern: str) -> list[str]:
    """Split a pattern; merge adjacent **, which are equivalent to one but slower."""
    parts = pattern.split("/")
    return [part for at, part in enumerate(parts) if part != "**" or parts[at - 1 : at] != ["**"]]


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    part, *others = parts
    if part != "**":
        return bool(names) and _wanted(part)(names[0]) and _rest_fits(names[1:], others)
    hidden = (at for at, name in enumerate(names) if name.startswith("."))
    deepest = next(hidden, len(names))  # number of folders that ** descends into
    return any(_fits(names[at:], others or ["*"]) for at in range(deepest + 1))


def _rest_fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    return _fits(names, parts) if parts else not names


@lru_cache(maxsize=256)
def _wanted(part: str) -> Callable[[str], bool]:
    """Return a test of names in a folder; a wildcard does not match the dot of hidden names."""
    if not glob.has_magic(part):
        return lambda name: name == part
    wanted = re.compile(fnmatch.translate(part))
    shows_hidden = part.startswith(".")
    return lambda name: bool(wanted.match(name)) and (shows_hidden or not name.startswith("."))


def _matches(folder: str, parts: Sequence[str], errors: list[OSError]) -> Iterator[str]:
    """Yield the paths below a folder whose parts match, some of them repeatedly."""
    part, *others = parts
    if part == "**":
        for inner, folders, _ in walk(folder or ".", onerror=errors.append):
            folders[:] = [each for each in folders if not each.startswith(".")]
            below = inner if folder else inner.removeprefix(".").removeprefix("/")
            yield from _matches(below, others or ["*"], errors)
        return
    try:
        if glob.has_magic(part):
            names = os.listdir(folder or ".")  # noqa: PTH208 - keeps ./x as the user wrote it
            found = list(filter(_wanted(part), names))
        else:
            os.lstat(os.path.join(folder, part))  # noqa: PTH118
            found = [part]
    except OSError as error:
        errors.append(error)
        return
    for name in found:
        path = os.path.join(folder, name)  # noqa: PTH118
        if others:
            yield from _matches(path, others, errors)
        else:
            yield path
