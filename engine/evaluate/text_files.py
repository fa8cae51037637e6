"""Read the text files of a data set."""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import InputError
from engine.files.naming import shown
from engine.files.regular import read_bytes

LABELS_LIMIT = 16 << 20
JSON_LIMIT = 1 << 30


def read_text(path: Path, *, limit: int = LABELS_LIMIT) -> str:
    """Read UTF-8 text with any kind of line ending; keep bytes that are not UTF-8 as surrogates."""
    data = read_bytes(path, InputError, limit=limit)
    if b"\0" in data:
        raise InputError(f"{shown(path)}: expected lines of text, got binary data")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = os.fsdecode(data)
    return text.replace("\r\n", "\n").replace("\r", "\n")
