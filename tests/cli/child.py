"""Run `python -m engine` in a child process, as a user does, or here, where that shows the same."""

import io
import logging
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import cli

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


def engine_here(*arguments, cwd=".", **environment):
    """Run a command in this process; starting one takes longer than what most commands do."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(out),
        redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()  # they are errors of tests
        patch.chdir(cwd)
        patch.setattr(logging.getLogger(), "handlers", [])  # pytest's: warnings go to stderr
        for name, value in environment.items():
            patch.setenv(name, value)
        status = cli.main([*map(str, arguments)])
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Done(status, *texts)


def names_in(out):
    """Return the pictures named in a table, in order."""
    return [line.split("  ")[0] for line in out.splitlines() if line.endswith(" ms")]
