"""The oracle of fuzzing: any exception but EngineError, more than 1 s or 512 MB is a finding."""

from __future__ import annotations

import logging
import os
import resource
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError

MAX_SECONDS = 1.0  # of CPU time, which does not depend on the load of the machine
MAX_BYTES = 512 << 20  # of additional address space
MAX_MESSAGE_LENGTH = 600


@dataclass(frozen=True)
class Finding:
    kind: str  # one word
    where: str  # the innermost line of the engine in the traceback
    text: str

    @property
    def key(self) -> str:
        return f"{self.kind} {self.where}"


def check(
    run: Callable[[bytes], None],
    data: bytes,
    *,
    max_seconds: float = MAX_SECONDS,
    max_bytes: int = MAX_BYTES,
) -> Finding | None:
    """Run a harness on one input and return what is wrong, or None."""
    start = time.process_time()
    try:
        _within_memory(run, data, max_bytes)
    except EngineError as error:
        found = _check_message(error)
    except Exception as error:
        found = _finding(type(error).__name__, error)
    else:
        found = None
    seconds = time.process_time() - start
    if found is None and seconds > max_seconds:
        return Finding("slow", "", f"{seconds:.2f} s")
    return found


def silence() -> None:
    """Disable log messages of the engine, and turn Python's warnings into errors."""
    logging.disable()
    warnings.simplefilter("error")


def _within_memory(run: Callable[[bytes], None], data: bytes, max_bytes: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + max_bytes, hard))
    try:
        run(data)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _check_message(error: EngineError) -> Finding | None:
    """Return a finding unless the message is one printable line.

    A message about too little memory is a finding, too: the reader should have checked the size.
    """
    text = str(error)
    if not text.isprintable() or not text or len(text) > MAX_MESSAGE_LENGTH:
        return _finding("message", error)
    return _finding("memory", error) if "into memory" in text else None


def _finding(kind: str, error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if f"{os.sep}engine{os.sep}" in each.filename] or frames
    last = own[-1]
    where = f"{last.filename.rpartition(f'{os.sep}engine{os.sep}')[2]}:{last.lineno}"
    return Finding(kind, where, "".join(traceback.format_exception(error)))
