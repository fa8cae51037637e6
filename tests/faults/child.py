"""Run programs in child processes and return their output and exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120  # a program that takes longer hangs


@dataclass(frozen=True)
class End:
    status: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Return its error messages; fail on a traceback."""
        assert "Traceback" not in self.err, self.err
        return [line for line in self.err.splitlines() if line.startswith("Error: ")]


def start(program: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """Start Python with `program`, which gets `arguments` as sys.argv[1:]."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        **{
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": environment,
            **options,
        },
    )


def run(program: str, *arguments: object, **options: object) -> End:
    with start(program, *arguments, **options) as process:
        try:
            out, err = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    return End(process.returncode, out, err)


ENGINE = "import sys; from engine.cli import main; sys.exit(main())"
