"""Worker threads that share the work of an op, while NumPy's BLAS uses one thread.

A multi-threaded BLAS speeds up matrix products only, leaves every copy and sum serial, and changes
the order of its sums with the number of threads. Here the work of an op is divided into pieces by
shapes alone and each piece runs on one thread, so results do not depend on the number of threads.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from engine.arguments import parse_integer
from engine.arrays import Array
from engine.backends.cpu import blas
from engine.backends.cpu.affinity import WorkerAffinity
from engine.concurrency.cores import usable_cores
from engine.errors import InputError, translate_thread_errors
from engine.files.naming import shown

Task = Callable[[int, int], None]  # (worker, piece)

THREADS_VARIABLE = "ENGINE_NUM_THREADS"
_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


def thread_count() -> int:
    """Return ENGINE_NUM_THREADS, or the number of processors that this process may use."""
    text = os.environ.get(THREADS_VARIABLE, "").strip()
    if not text:
        return usable_cores()
    count = parse_integer(text)
    if not count:
        raise InputError(f"{THREADS_VARIABLE}: expected a number of threads, got {shown(text)!r}")
    return count


class Workers:
    """The worker threads of one program, and the scratch memory that its ops use in turn.

    Threads start at the first run that needs them, are started again after a fork, end when this
    object is deleted, and never keep the interpreter alive. The calling thread is worker 0.
    """

    def __init__(self, count: int | None = None) -> None:
        wanted = thread_count() if count is None else count
        assert wanted > 0
        self.count = wanted if blas.loaded() is not None else 1
        self._reset_threads()
        self._needed = 0
        self._affinity = WorkerAffinity()
        self._scratch: list[Array] = []
        self._shared_needed: dict[str, int] = {}
        self._shared: dict[str, Array] = {}

    # ------------------------------------------------------------ threads

    def run(self, task: Task, pieces: int) -> None:
        """Call task(worker, piece) for every piece; return when all calls have returned."""
        if self.count == 1 or pieces <= 1:
            for piece in range(pieces):
                task(0, piece)
            return
        self._start_threads()
        self._affinity.avoid_caller(self._threads)
        loop = _ParallelLoop(task, pieces)
        for _ in range(min(self.count, pieces) - 1):
            self._loops.put(loop)
        try:
            loop.work(0)
            loop.wait()
        except BaseException:  # such as an interrupt: workers must not write during the next op
            loop.abandon()
            raise

    @contextmanager
    def serial_blas(self) -> Iterator[None]:
        """Restrict the BLAS to one thread; every op runs in this context.

        The setting is global to the process: other users of NumPy are subject to it as well.
        """
        library = blas.loaded()
        if library is None:
            yield
            return
        library.hold()
        try:
            yield
        finally:
            library.release()

    def close(self) -> None:
        if self._process == os.getpid():
            _stop(self._loops, self._threads)
            for thread in self._threads:
                thread.join()
        self._threads.clear()
        self._scratch = []
        self._shared = {}

    def _reset_threads(self) -> None:
        self._process = os.getpid()
        self._loops: SimpleQueue[_ParallelLoop | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        finalize(self, _stop, self._loops, self._threads).atexit = False

    def _start_threads(self) -> None:
        if self._process != os.getpid():  # a fork copies the queue but not the threads
            self._reset_threads()
        while len(self._threads) < self.count - 1:
            number = len(self._threads) + 1
            thread = threading.Thread(
                target=_serve, args=(self._loops, number), name=f"engine-{number}", daemon=True
            )
            with translate_thread_errors("cpu"):
                thread.start()
            self._threads.append(thread)

    # ------------------------------------------------------------ scratch memory

    def reserve(self, *sizes: int) -> None:
        """Request scratch on each worker for arrays of `sizes` bytes that are used together."""
        self._needed = max(self._needed, _padded_total(sizes))

    def reserve_shared(self, name: str, *sizes: int) -> None:
        """Request scratch that all workers share; each `name` has memory of its own."""
        self._shared_needed[name] = max(self._shared_needed.get(name, 0), _padded_total(sizes))

    def carve(self, worker: int, dtype: DTypeLike, *shapes: tuple[int, ...]) -> list[Array]:
        """Return arrays in the worker's scratch; the next op that carves overwrites them."""
        if not self._scratch or len(self._scratch[0]) < self._needed:
            self._scratch = [np.empty(self._needed, np.uint8) for _ in range(self.count)]
        return _carve(self._scratch[worker], np.dtype(dtype), shapes)

    def carve_shared(self, name: str, dtype: DTypeLike, *shapes: tuple[int, ...]) -> list[Array]:
        """Return arrays that all workers share; the next op that carves `name` overwrites them."""
        needed = self._shared_needed[name]
        if name not in self._shared or len(self._shared[name]) < needed:
            self._shared[name] = np.empty(needed, np.uint8)
        return _carve(self._shared[name], np.dtype(dtype), shapes)

    @property
    def workspace_bytes(self) -> int:
        return self._needed * self.count + sum(self._shared_needed.values())


class _ParallelLoop:
    """One task and its pieces; an idle worker takes the next piece."""

    def __init__(self, task: Task, pieces: int) -> None:
        self._task = task
        self._pieces = pieces
        self._taken = itertools.count()  # next() is atomic, so no lock is needed
        self._finished = itertools.count(1)
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._helpers = 0
        self._is_abandoned = False
        self._changed = threading.Condition()

    def help(self, worker: int) -> None:
        """Work on pieces unless the loop has been abandoned."""
        with self._changed:
            if self._is_abandoned:
                return
            self._helpers += 1
        try:
            self.work(worker)
        finally:
            with self._changed:
                self._helpers -= 1
                self._changed.notify()

    def abandon(self) -> None:
        """Skip the remaining pieces; return when no helper is working."""
        while True:
            try:
                with self._changed:
                    self._is_abandoned = True
                    self._error = self._error or InterruptedError()  # skips the remaining pieces
                    self._changed.wait_for(lambda: self._helpers == 0)
                    return
            except KeyboardInterrupt:  # a second one; the first is about to be raised
                continue

    def work(self, worker: int) -> None:
        while (piece := next(self._taken)) < self._pieces:
            try:
                if self._error is None:
                    self._task(worker, piece)
            except BaseException as error:  # raised in the thread that called run
                self._error = error
            finally:
                if next(self._finished) == self._pieces:
                    self._done.release()

    def wait(self) -> None:
        self._done.acquire()
        if self._error is not None:
            raise self._error


def _serve(loops: SimpleQueue[_ParallelLoop | None], worker: int) -> None:
    with np.errstate(all="ignore"):  # a setting of each thread; values may be infinite or NaN
        while (loop := loops.get()) is not None:
            loop.help(worker)
            del loop  # an idle thread must not keep the arrays of the last op alive


def _stop(loops: SimpleQueue[_ParallelLoop | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        loops.put(None)


def _padded_total(sizes: tuple[int, ...]) -> int:
    return sum(map(_aligned, sizes)) + _ALIGNMENT


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _carve(memory: Array, dtype: np.dtype[Any], shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    start = -memory.ctypes.data % _ALIGNMENT
    arrays = []
    for shape in shapes:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        arrays.append(memory[start : start + size].view(dtype).reshape(shape))
        start += _aligned(size)
    return arrays
