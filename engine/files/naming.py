"""Names of files and pictures in one-line messages."""

from __future__ import annotations

import os
from pathlib import Path

_MAX_LENGTH = 200
_MAX_BYTES = 120  # as file systems count bytes; leaves room for a number and an extension


def escaped(text: str) -> str:
    """Escape control characters and undecodable bytes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def escaped_bytes(text: str) -> str:
    """Escape undecodable bytes alone, so that the text is valid UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def shown(name: str | Path) -> str:
    """Escape control characters and undecodable bytes; shorten a long name in the middle."""
    printable = escaped(str(name))
    if len(printable) <= _MAX_LENGTH:
        return printable
    half = _MAX_LENGTH // 2
    return f"{printable[:half]}…{printable[-half:]}"


def line_of(error: object) -> str:
    """Return the text of an error on one line, or its type if it has none."""
    return shown(" ".join(str(error).split())) or type(error).__name__


def name_and_size(path: str | None, size: tuple[int, int]) -> str:
    """Describe a picture, such as: street.jpg, 640 x 480."""
    return f"{'picture' if path is None else shown(path)}, {size[0]} x {size[1]}"


def folder_name_of(label: str) -> str:
    """Turn any label into a valid name of a folder."""
    name = "".join(each if each.isalnum() or each in " -_.,()'" else "_" for each in label)
    return shortened(name.strip(" .")) or "_"


def shortened(name: str) -> str:
    """Cut a name that is too long for the name of a file."""
    name = name[:_MAX_BYTES]
    while len(os.fsencode(name)) > _MAX_BYTES:
        name = name[:-1]
    return name
