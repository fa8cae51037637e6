"""Class hierarchies: the .tree files that [softmax] and [region] refer to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from engine.errors import ConfigError
from engine.files.naming import shown
from engine.files.regular import read_bytes

_MAX_BYTES = 16 << 20
_ROOT = -1


@dataclass(frozen=True)
class Tree:
    """Classes in the order of the file; a parent precedes its children, and -1 is the root."""

    names: tuple[str, ...] = field(repr=False)
    parents: tuple[int, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Return the number of classes in each softmax: one per run of consecutive siblings."""
        return tuple(len(list(siblings)) for _, siblings in groupby(self.parents))


def find_tree(name: str, folder: Path | None, where: str) -> Path:
    """Find the tree that a .cfg in `folder` names; a .cfg given as text has no folder.

    A .cfg may be untrusted, so a name that leaves the .cfg's folder and the working folder is
    refused before any lookup. Links inside these folders are followed.
    """
    folders = [Path()] if folder is None else [folder, Path()]
    # `..` is resolved textually: the parent of a link to another folder would lead outside.
    paths = [Path(os.path.normpath(each / name)) for each in folders]
    try:
        working = Path.cwd()
    except OSError as error:
        raise ConfigError(f"{where}: no working folder: {error.strerror}") from None
    allowed = [os.path.normpath(working / each) for each in folders]
    if working == Path(working.anchor):  # usual for services: all files are below it
        allowed.pop()
    inside = [
        path
        for path in paths
        if any(Path(os.path.normpath(working / path)).is_relative_to(each) for each in allowed)
    ]
    if not inside:
        raise ConfigError(
            f"{where}: {shown(name)}: expected a file in the folder of the .cfg or in the working "
            "folder. Copy it there and name it without its folder."
        )
    return next(filter(_exists, inside), inside[-1])


def read_tree(path: str | Path, where: str) -> Tree:
    """Read lines of `name parent`; `where` names the option that refers to the file."""
    try:
        tree = _parse(read_bytes(path, ConfigError, limit=_MAX_BYTES), shown(path))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if not tree.names:
        raise ConfigError(f"{where}: {shown(path)}: expected at least one class, got none")
    return tree


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long, which opening the file will report
        return False


@lru_cache(maxsize=4)  # thousands of layers may refer to one file
def _parse(data: bytes, file: str) -> Tree:
    """Parse a file that an untrusted .cfg may name; messages must not quote its content."""
    names: list[str] = []
    parents: list[int] = []
    for number, line in enumerate(data.decode("utf-8-sig", errors="replace").split("\n"), 1):
        words = line.split()
        if not words:
            continue
        parent = _integer(words[1]) if len(words) == 2 else None
        if parent is None:
            raise ConfigError(f"{file}:{number}: expected 'name parent'")
        if not _ROOT <= parent < len(names):
            raise ConfigError(
                f"{file}:{number}: parent: expected -1 (the root) or "
                f"the number of a line above, 0 to {len(names) - 1}"
            )
        names.append(words[0])
        parents.append(parent)
    return Tree(tuple(names), tuple(parents))


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None
