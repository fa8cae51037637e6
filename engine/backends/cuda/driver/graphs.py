"""CUDA graphs: record what is enqueued once, launch it in one call. PyCUDA has no binding."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

from engine.backends.cuda.driver import driver_api, pycuda_loader
from engine.backends.cuda.driver.pycuda_loader import call
from engine.concurrency import fork_safety

# Relaxed, because the garbage collector may free any device memory during the capture.
_RELAXED = 2


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
            call("cuGraphExecDestroy", ctypes.c_void_p(self._executable))
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
    graph, executable, on = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(stream)
    with _capture_lock:
        call("cuStreamBeginCapture_v2", on, _RELAXED)
        try:
            enqueue()
        except BaseException:
            # End the capture in any case; the original error is raised.
            pycuda_loader.libcuda().cuStreamEndCapture(on, ctypes.byref(graph))
            if graph:
                pycuda_loader.libcuda().cuGraphDestroy(graph)
            raise
        call("cuStreamEndCapture", on, ctypes.byref(graph))
        try:
            made = ctypes.byref(executable)
            call("cuGraphInstantiateWithFlags", made, graph, ctypes.c_ulonglong(0))
        finally:
            call("cuGraphDestroy", graph)
    assert executable.value
    return Graph(executable.value, stream)
