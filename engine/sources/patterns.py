"""Patterns with *, ?, [abc] and **, such as cam*/day[12]/*.jpg."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Sequence

from engine.files.walk import walk

_NO_MATCH = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_ENDS_ANYWHERE = re.compile(r"(^|/)\*\*(/\*)*$")


def matches(pattern: str) -> tuple[set[str], list[OSError]]:
    """Return the paths that match, and errors about the folders that cannot be read.

    Unlike those of `glob`, `**` does not follow links to folders, which may form circles.
    """
    errors: list[OSError] = []
    drive, path = os.path.splitdrive(pattern)
    top = f"{drive}/" if path.startswith("/") else drive
    try:
        found = set(_matches(top, path.lstrip("/").split("/"), errors))
    except (ValueError, RecursionError):  # a NUL byte, a thousand folders
        found = set()
    return found, [each for each in errors if each.errno not in _NO_MATCH]


def matches_all(pattern: str) -> bool:
    """Return whether a pattern goes into all folders and matches what is there, as a/** does."""
    return bool(_ENDS_ANYWHERE.search(pattern))


def fixed_folder(pattern: str) -> str:
    """Return the folders before the first one with a wildcard."""
    parts = pattern.split("/")
    fixed = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")


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
            wanted = re.compile(fnmatch.translate(part))
            names = os.listdir(folder or ".")  # noqa: PTH208 - keeps ./x as the user wrote it
            found = [each for each in names if wanted.match(each)]
            if not part.startswith("."):
                found = [each for each in found if not each.startswith(".")]
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
