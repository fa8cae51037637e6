"""CUDA graphs: record what is enqueued once, launch it in one call. PyCUDA has no binding."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from engine.backends.cuda.driver import driver_api, library, pycuda_loader
from engine.concurrency import fork_safety

# Relaxed, because the garbage collector may free any device memory during the capture.
_RELAXED = 2
_ARGUMENTS = {
    "cuStreamBeginCapture_v2": (ctypes.c_void_p, ctypes.c_int),
    "cuStreamEndCapture": (ctypes.c_void_p, ctypes.c_void_p),
    "cuGraphInstantiateWithFlags": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong),
    "cuGraphDestroy": (ctypes.c_void_p,),
    "cuGraphExecDestroy": (ctypes.c_void_p,),
}


class Graph:
    """An executable graph and the stream on which it was recorded."""

    def __init__(self, executable: int, stream: int) -> None:
        self._executable = executable
        self._launch = partial(driver_api.libcuda().cuGraphLaunch, executable, stream)

    def launch(self) -> None:
        """Enqueue the graph, on any thread that holds the enqueue lock."""
        if status := self._launch():
            pycuda_loader.check("cuGraphLaunch", status)

    def close(self) -> None:
        if self._executable:
            _call("cuGraphExecDestroy", self._executable)
            self._executable = 0


# Synchronising a context invalidates captures on its streams, and all devices of this process on
# one card share its primary context.
_capture_lock = fork_safety.lock(inner=True)


def synchronize(driver: Any) -> None:
    """Wait for all work in the current context."""
    with _capture_lock:
        driver.Context.synchronize()


def record(stream: int, enqueue: Callable[[], None]) -> Graph:
    """Capture what `enqueue` enqueues, without running it, as a graph."""
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    with _capture_lock:
        _call("cuStreamBeginCapture_v2", stream, _RELAXED)
        try:
            enqueue()
        except BaseException:
            # End the capture in any case; the original error is raised.
            _libcuda().cuStreamEndCapture(stream, ctypes.byref(graph))
            if graph:
                _libcuda().cuGraphDestroy(graph)
            raise
        _call("cuStreamEndCapture", stream, ctypes.byref(graph))
        try:
            _call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        finally:
            _call("cuGraphDestroy", graph)
    assert executable.value
    return Graph(executable.value, stream)


@lru_cache(maxsize=1)
def _libcuda() -> ctypes.CDLL:
    return library.declare(library.load(library.DRIVER), _ARGUMENTS)


def _call(name: str, *arguments: object) -> None:
    pycuda_loader.check(name, getattr(_libcuda(), name)(*arguments))
