"""What all processes that decode pictures have in common: how they are started.

They are programs of their own, neither forks nor children of multiprocessing: a fork would copy the
locks of threads and the state of a GPU, and multiprocessing would import the user's main module.
They hold Pillow, NumPy and this package's decoder, and nothing of the network.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
