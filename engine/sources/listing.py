"""Lists of pictures, one name a line, as darknet's own train.txt; from files or standard input."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.errors import InputError
from engine.files.naming import shown
from engine.files.regular import read_bytes
from engine.sources import kinds

_MOST_BYTES = 256 << 20
_QUOTES = "\"'"
_UTF16 = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def read(path: str) -> list[str]:
    """The names in a list. What is not found from here is looked for beside the list."""
    content = read_bytes(path, InputError, limit=_MOST_BYTES)
    try:
        # the bytes of names that are no UTF-8 must find their files
        text = content.decode(_UTF16.get(content[:2], "utf-8-sig"), "surrogateescape")
    except UnicodeDecodeError:
        raise InputError(f"{shown(path)}: expected text, got damaged UTF-16") from None
    lines = text.split("\n") if "\n" in text else text.split("\r")
    return [_where_it_is(name, Path(path).parent) for name in entries(lines)]


def entries(lines: Iterable[str]) -> Iterator[str]:
    """The names in lines: without blank ones, line ends, byte order mark and quotes."""
    for line in lines:
        name = line.strip().removeprefix("\ufeff").strip()
        if len(name) > 1 and name[0] in _QUOTES and name[0] == name[-1]:
            name = name[1:-1]
        if name:
            yield name


def _where_it_is(name: str, folder: Path) -> str:
    if kinds.is_address(name) or os.path.lexists(name):
        return name
    beside = folder / name
    return str(beside) if os.path.lexists(beside) else name
