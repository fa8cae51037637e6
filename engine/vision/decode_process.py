"""Code shared by all decoding processes: how they start and what they collect.

They are separate programs, neither forks nor children of multiprocessing: a fork would copy held
locks and GPU state, and multiprocessing would import the user's main module. They load Pillow,
NumPy and this package's decoder, and nothing of the network.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from engine.errors import EngineError

ENVIRONMENT = {
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),  # glibc returns larger blocks to the system at once,
    "MALLOC_TRIM_THRESHOLD_": str(8 << 20),  # and keeps the memory of smaller ones
}


def require_interpreter() -> None:
    if getattr(sys, "frozen", False) or not sys.executable:
        raise EngineError(
            "decode: worker processes need a Python interpreter, got a frozen program"
        )


def command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that calls main() of a module with text arguments."""
    count = len(arguments) + 1
    program = (
        f"import sys; sys.path[:] = sys.argv[{count}:];"
        f"from {module} import main; main(*sys.argv[1:{count}])"
    )
    paths = [str(Path(each).absolute()) for each in sys.path if isinstance(each, str)]
    return [sys.executable, "-I", "-c", program, *arguments, *paths]


def prepare() -> None:
    """Leave signals to the parent program; make Linux's OOM killer prefer this process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the terminal sends them to a whole group
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000")


class Warnings(logging.Handler):
    """Collects what is logged while a picture is decoded, for the log of the other process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
