"""Print to stderr; ignore a closed pipe or a full disk."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def print_stderr(text: str, *, end: str = "\n") -> None:
    """Print a line, removing logins from URLs, which the user may have passed in any argument."""
    from engine.files.naming import without_logins  # pathlib is not needed for --help

    try:
        print(without_logins(text), end=end, file=sys.stderr, flush=True)
    except OSError:
        redirect_to_null(sys.stderr)


def redirect_to_null(stream: TextIO) -> None:
    """Redirect a broken stream to null: Python flushes it at exit and would report the error."""
    with suppress(OSError):
        descriptor = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
