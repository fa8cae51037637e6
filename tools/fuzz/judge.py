"""What counts as a finding: anything but EngineError, over 1 s, over 512 MB."""

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

SECONDS = 1.0  # of this process's own time: a busy machine does not count
BYTES = 512 << 20  # of addresses beyond what the process has already
LONGEST_MESSAGE = 600


@dataclass(frozen=True)
class Finding:
    kind: str  # what to call it, one word
    where: str  # the innermost line of the engine that took part
    text: str

    @property
    def key(self) -> str:
        return f"{self.kind} {self.where}"


def judge(run: Callable[[bytes], None], data: bytes) -> Finding | None:
    """Run one input as strictly as a stranger's is meant to be taken."""
    start = time.process_time()
    try:
        _within_memory(run, data)
    except EngineError as error:
        found = _of_message(error)
    except Exception as error:
        found = _of(type(error).__name__, error)
    else:
        found = None
    seconds = time.process_time() - start
    if found is None and seconds > SECONDS:
        return Finding("slow", "", f"{seconds:.2f} s")
    return found


def be_silent() -> None:
    """Warnings of the engine are for users; those of Python count as errors."""
    logging.disable()
    warnings.simplefilter("error")


def _within_memory(run: Callable[[bytes], None], data: bytes) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, hard))
    try:
        run(data)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _of_message(error: EngineError) -> Finding | None:
    """An error on purpose is one printable line that is not about memory we could have counted."""
    text = str(error)
    if not text.isprintable() or not text or len(text) > LONGEST_MESSAGE:
        return _of("message", error)
    return _of("memory", error) if "into memory" in text else None


def _of(kind: str, error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if f"{os.sep}engine{os.sep}" in each.filename] or frames
    last = ours[-1]
    where = f"{last.filename.rpartition(f'{os.sep}engine{os.sep}')[2]}:{last.lineno}"
    return Finding(kind, where, "".join(traceback.format_exception(error)))
