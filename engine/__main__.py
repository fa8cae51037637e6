"""python -m engine, and the command `engine`."""

from __future__ import annotations

import sys
from typing import NoReturn

from engine.concurrency import process_end


def run() -> NoReturn:
    """Run the command line, and end the process with its exit status."""
    process_end.install()  # before imports that take time
    from engine.cli import main

    status = main()
    process_end.ignore_repeated(status)
    if process_end.is_signal(status) and "ray" in sys.modules:
        process_end.leave(status)
    sys.exit(status)


if __name__ == "__main__":
    run()
