"""CUDA graphs: what was enqueued once is launched again in one call. PyCUDA has no binding."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from engine.backends.cuda.driver import driver_api, library
from engine.concurrency import fork_safety
from engine.errors import DeviceError

# Relaxed: a garbage collector may free device memory of anyone while we capture.
_RELAXED = 2
_ARGUMENTS = {
    "cuStreamBeginCapture_v2": (ctypes.c_void_p, ctypes.c_int),
    "cuStreamEndCapture": (ctypes.c_void_p, ctypes.c_void_p),
    "cuGraphInstantiateWithFlags": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong),
    "cuGraphDestroy": (ctypes.c_void_p,),
    "cuGraphExecDestroy": (ctypes.c_void_p,),
    "cuGetErrorString": (ctypes.c_int, ctypes.c_void_p),
}


class Graph:
    """An instantiated graph on the stream that it was recorded on."""

    def __init__(self, executable: int, stream: int) -> None:
        self._executable = executable
        self._launch = partial(driver_api.libcuda().cuGraphLaunch, executable, stream)

    def launch(self) -> None:
        """Enqueue all of it, on any thread in its turn."""
        status = self._launch()
        if status != 0:
            _fail("cuGraphLaunch", status)

    def close(self) -> None:
        if self._executable:
            _call("cuGraphExecDestroy", self._executable)
            self._executable = 0


# Synchronising a context breaks what its streams record, and those of one card share it, whichever
# device of the process they are of.
_alone = fork_safety.lock(inner=True)


def synchronize(driver: Any) -> None:
    """Wait for all that is under way in the current context, whoever began it."""
    with _alone:
        driver.Context.synchronize()


def record(stream: int, enqueue: Callable[[], None]) -> Graph:
    """Run `enqueue` without running what it enqueues; make that a graph."""
    with _alone:
        return _record(stream, enqueue)


def _record(stream: int, enqueue: Callable[[], None]) -> Graph:
    graph = ctypes.c_void_p()
    _call("cuStreamBeginCapture_v2", stream, _RELAXED)
    try:
        enqueue()
    except BaseException:
        # The stream must leave capture whatever happened; what is wrong is already being told.
        _libcuda().cuStreamEndCapture(stream, ctypes.byref(graph))
        if graph:
            _libcuda().cuGraphDestroy(graph)
        raise
    _call("cuStreamEndCapture", stream, ctypes.byref(graph))
    executable = ctypes.c_void_p()
    try:
        _call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
    finally:
        _call("cuGraphDestroy", graph)
    assert executable.value
    return Graph(executable.value, stream)


@lru_cache(maxsize=1)
def _libcuda() -> ctypes.CDLL:
    loaded = library.load(library.DRIVER)
    for name, arguments in _ARGUMENTS.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return loaded


def _call(name: str, *arguments: object) -> None:
    status = getattr(_libcuda(), name)(*arguments)
    if status != 0:
        _fail(name, status)


def _fail(name: str, status: int) -> None:
    text = ctypes.c_char_p()
    _libcuda().cuGetErrorString(status, ctypes.byref(text))
    reason = text.value.decode() if text.value else f"status {status}"
    raise DeviceError(f"cuda: {name}: {reason}")
