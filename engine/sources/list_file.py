"""Lists with one name per line, such as darknet's train.txt, from a file or standard input."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.errors import InputError
from engine.files.naming import shown
from engine.files.regular import read_bytes
from engine.sources.media import is_url

_MAX_BYTES = 256 << 20
_QUOTES = "\"'"
_UTF16 = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def read(path: str) -> list[str]:
    """Read the names in a list, relative to the current folder, the list's or its parent."""
    content = read_bytes(path, InputError, limit=_MAX_BYTES)
    try:
        # surrogateescape preserves file names that are not UTF-8
        text = content.decode(_UTF16.get(content[:2], "utf-8-sig"), "surrogateescape")
    except UnicodeDecodeError:
        raise InputError(f"{shown(path)}: expected text, got damaged UTF-16") from None
    lines = text.split("\n") if "\n" in text else text.split("\r")
    return [_resolve(name, Path(path).parent) for name in parse_lines(lines)]


def parse_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the names in lines without line ends, byte order mark and quotes; skip blank lines."""
    for line in lines:
        name = line.strip().removeprefix("\ufeff").strip()
        if len(name) > 1 and name[0] in _QUOTES and name[0] == name[-1]:
            name = name[1:-1]
        if name:
            yield name


def _resolve(name: str, folder: Path) -> str:
    if is_url(name) or os.path.lexists(name):
        return name
    # Darknet's data/valid.txt names data/obj/1.jpg, relative to the parent of its folder.
    places = folder / name, folder.absolute().parent / name
    return next((str(each) for each in places if os.path.lexists(each)), name)
