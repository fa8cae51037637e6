"""Reading the text files of a data set, which may be anything: bounded, and only regular files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.errors import InputError
from engine.files.naming import shown

LABELS_LIMIT = 16 << 20
JSON_LIMIT = 1 << 30


def read_text(path: Path, *, limit: int = LABELS_LIMIT) -> str:
    """UTF-8 where it is, else byte for byte, with any kind of line end."""
    name = shown(str(path))
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            kind = "a folder" if stat.S_ISDIR(about.st_mode) else "a pipe or device"
            raise InputError(f"{name}: expected a file, got {kind}")
        with path.open("rb") as file:
            data = file.read(min(about.st_size, limit) + 1)  # it takes the memory beforehand
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name}: cannot be read: {error}") from None  # a NUL byte in the path
    if len(data) > limit:
        raise InputError(f"{name}: expected at most {limit >> 20} MiB, got more")
    if b"\0" in data:
        raise InputError(f"{name}: expected lines of text, got binary data")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = os.fsdecode(data)
    return text.replace("\r\n", "\n").replace("\r", "\n")
