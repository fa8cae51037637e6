"""Let a program run at once, and faster as soon as faster algorithms are found."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any
from weakref import ref

from engine.backends.cuda.driver.worker import ClosedError
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.runtime.program import CudaProgram
from engine.concurrency import thread_cache
from engine.errors import EngineError

_HEAD_START = 1.0  # seconds for the first result

_log = logging.getLogger(__name__)

Search = Callable[[], Lowered]  # returns what the program should run from then on


def improve_later(program: CudaProgram, search: Search, turn: Any) -> None:
    """Search on a thread that delays neither close() nor the exit of the interpreter.

    `turn` is a lock: searches measure, so one runs at a time.
    """
    try:
        thread = thread_cache.take()
    except RuntimeError as error:  # the process may start no more threads
        _log.warning("tuning in the background is left out: %s", error)
        return
    program.is_settled.clear()
    job = partial(_improve, ref(program), search, turn, program.is_settled.set, thread.release)
    thread.start(job, "cuda-tune")


def _improve(
    program: Callable[[], CudaProgram | None],
    search: Search,
    turn: Any,
    settled: Callable[[], None],
    release: Callable[[], None],
) -> None:
    try:
        sleep(_HEAD_START)
        with turn:
            if (made := program()) is not None and not made.is_closed:
                del made  # it may be dropped during the search
                found = search()
                if (made := program()) is not None:
                    made.adopt(found)
    except ClosedError:
        pass
    except EngineError as error:  # what runs goes on
        _log.warning("tuning in the background has ended: %s", error)
    finally:
        settled()
    release()  # not after another exception, which ends the thread
