"""Class hierarchies: the .tree file of [softmax] and [region], and class indices in .map files."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from engine.errors import ConfigError

LARGEST_BYTES = 16 << 20
_ROOT = -1


@dataclass(frozen=True)
class Tree:
    """Classes in the order of the file; a parent stands above its children, -1 is the root."""

    names: tuple[str, ...] = field(repr=False)
    parents: tuple[int, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Lengths of the runs of siblings: one softmax each. Two runs of one parent stay two."""
        return tuple(len(list(run)) for _, run in groupby(self.parents))


def read_tree(path: str | Path, where: str) -> Tree:
    """Read lines of `name parent`; `where` names the option that asked for the file."""
    names: list[str] = []
    parents: list[int] = []
    for number, line in _lines(path, where):
        words = line.split()
        parent = _integer(words[1]) if len(words) == 2 else None
        if parent is None:
            raise ConfigError(f"{path}:{number}: expected 'name parent', got {line[:60]!r}")
        if not _ROOT <= parent < len(names):
            raise ConfigError(
                f"{path}:{number}: parent of {words[0]!r}: expected -1 (the root) or the number of "
                f"a line above, 0 to {len(names) - 1}, got {parent}"
            )
        names.append(words[0])
        parents.append(parent)
    if not names:
        raise ConfigError(f"{where}: {str(path)!r} names no class")
    return Tree(tuple(names), tuple(parents))


def read_map(path: str | Path, where: str) -> tuple[int, ...]:
    """Read one class index a line."""
    indices: list[int] = []
    for number, line in _lines(path, where):
        index = _integer(line.strip())
        if index is None or index < 0:
            raise ConfigError(f"{path}:{number}: expected the index of a class, got {line[:60]!r}")
        indices.append(index)
    if not indices:
        raise ConfigError(f"{where}: {str(path)!r} names no class")
    return tuple(indices)


def _lines(path: str | Path, where: str) -> list[tuple[int, str]]:
    """Numbered lines that are not blank, of a regular file of sane size."""
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{where}: {str(path)!r} is not a file")
        if status.st_size > LARGEST_BYTES:
            raise ConfigError(
                f"{where}: {str(path)!r}: expected at most {LARGEST_BYTES} bytes, "
                f"got {status.st_size}"
            )
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{where}: cannot read {str(path)!r}: {reason}") from None
    lines = text.removeprefix("\ufeff").split("\n")
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None
