"""What is said beside the results: a reader who has left, or a full disk, ends no run."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def tell(text: str) -> None:
    """Print on stderr, if anything can be printed there."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Python flushes it once more at exit, and would complain."""
    with suppress(OSError):
        descriptor = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
