"""Compile kernels in child processes of low priority.

Threads would not do, because NVRTC must not be running while the process exits. A child ends when
its input ends, after its current kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic

from engine.backends.cuda.driver import compiler, library
from engine.backends.cuda.driver.compiler import Source
from engine.concurrency.cores import usable_cores
from engine.errors import EngineError

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:];"
    "from engine.backends.cuda.driver.compile_children import serve; serve()"
)
THREAD = "cuda-compile"  # the name of the threads that feed children
_NICENESS = 10


def compile_all(wanted: Iterable[Source], seconds: float) -> set[Source]:
    """Compile into the cache until `seconds` have passed; return what is in it then."""
    deadline = monotonic() + seconds
    wanted = set(wanted)
    compiled = {each for each in wanted if each.is_compiled}
    jobs: SimpleQueue[Source] = SimpleQueue()
    ended: SimpleQueue[Source | None] = SimpleQueue()
    missing = wanted - compiled
    for each in missing:
        jobs.put(each)
    children = min(len(missing), max(1, usable_cores() - 1))
    for _ in range(children):
        feed = partial(_feed, jobs, ended, deadline)
        threading.Thread(target=feed, name=THREAD, daemon=True).start()
    while children and (left := deadline - monotonic()) > 0:
        with suppress(Empty):
            source = ended.get(timeout=left)
            if source is None:
                children -= 1
            else:
                compiled.add(source)
    return compiled


def _feed(jobs: SimpleQueue[Source], ended: SimpleQueue[Source | None], deadline: float) -> None:
    """Let one child compile until there are no more jobs, or until `deadline`."""
    try:
        with _start() as child:
            assert child.stdin is not None
            assert child.stdout is not None
            while monotonic() < deadline:
                source = jobs.get_nowait()
                child.stdin.write(json.dumps(astuple(source)).encode() + b"\n")
                child.stdin.flush()
                image = child.stdout.read(int(child.stdout.readline()))
                if image:
                    source.keep(image)
                    ended.put(source)
    except (Empty, OSError, ValueError):  # no more jobs; or the child could not start, or ended
        pass
    finally:
        ended.put(None)


def _start() -> subprocess.Popen[bytes]:
    if getattr(sys, "frozen", False) or not sys.executable:
        raise OSError("no Python interpreter")
    paths = [str(Path(each).absolute()) for each in sys.path if isinstance(each, str)]
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _PROGRAM, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_same_compiler()},
        start_new_session=True,  # Ctrl-C does not reach it
    )


def _same_compiler() -> dict[str, str]:
    """Return the variables by which a child finds the compiler of this process."""
    nvcc, nvrtc = compiler.toolkit().nvcc, library.find(library.NVRTC)
    found = {library.NVCC.variable: nvcc, library.NVRTC.variable: nvrtc}
    return {name: path for name, path in found.items() if path and Path(path).is_file()}


def serve() -> None:
    """Answer each Source on the input with its image, which is empty if it does not compile."""
    with suppress(AttributeError, OSError):
        os.nice(_NICENESS)
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # for what a library prints
    for line in sys.stdin.buffer:
        text, options, capability, for_nvrtc = json.loads(line)
        try:
            image = Source(text, tuple(options), tuple(capability), for_nvrtc).compile_now()
        except EngineError:
            image = b""
        answers.write(b"%d\n" % len(image) + image)
        answers.flush()
