"""Run `python -m engine` in a child process, as a user does, or here, where that shows the same."""

import io
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import cli

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}

MOST_PIPED = 4096  # bytes that every pipe holds before anybody reads


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


def engines_in_turn(*commands, before="", **keywords):
    """Run commands in one child process, which writes the status of each to stderr."""
    program = (
        f"import json, sys; from engine import cli; {before}\nfor words in json.loads(sys.argv[1]):"
    )
    program += " print(cli.main(words), file=sys.stderr)"
    words = json.dumps([[str(word) for word in command] for command in commands])
    return subprocess.run(
        [sys.executable, "-c", program, words], timeout=60, **{"env": ENVIRONMENT, **keywords}
    )


def engine_here(*arguments, cwd=".", stdin=None, encoding="utf-8", **environment):
    """Run a command in this process; starting one takes longer than what most commands do.

    `stdin` is what it reads from a pipe, or an open file. `encoding` is that of stdout and stderr.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
    with (
        pytest.MonkeyPatch.context() as patch,
        standard_input(stdin) as source,
        redirect_stdout(out),
        redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()  # they are errors of tests
        patch.chdir(cwd)
        patch.setattr(sys, "stdin", source)
        patch.setattr(logging.getLogger(), "handlers", [])  # pytest's: warnings go to stderr
        for name, value in environment.items():
            patch.setenv(name, value)
        status = cli.main([*map(str, arguments)])
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Done(status, *texts)


@contextmanager
def standard_input(source):
    """Open a pipe with some content, or take a file, until no thread reads it any more."""
    if source is None:
        yield sys.stdin
        return
    is_open = hasattr(source, "fileno")
    with nullcontext(source) if is_open else open_pipe(os.fsencode(source)) as stream:
        yield stream
        for thread in threading.enumerate():  # it would read the next file with this number
            if thread.name == "engine-stdin":
                thread.join(30)
                assert not thread.is_alive()


def open_pipe(content):
    assert len(content) <= MOST_PIPED
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return os.fdopen(reading, encoding="utf-8")


def names_in(out):
    """Return the pictures named in a table, in order."""
    return [line.split("  ")[0] for line in out.splitlines() if line.endswith(" ms")]
