"""Run `python -m engine` in a child process, as a user does."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


def engine(*arguments, cwd=None, stdin="", timeout=60, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "engine", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def names_in(out):
    """Return the pictures named in a table, in order."""
    return [line.split("  ")[0] for line in out.splitlines() if line.endswith(" ms")]
