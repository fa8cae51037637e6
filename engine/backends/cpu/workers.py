"""Threads that share the work of an op, while the BLAS beneath NumPy stays on one thread.

A BLAS that threads by itself speeds up products only, leaves every copy and sum serial, and changes
the order of its sums with the number of threads. So the work is cut into pieces that depend on
shapes alone, each piece runs on one thread, and the answer is the same for any number of threads.
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
from engine.backends.cpu.apart import Apart
from engine.errors import InputError, translate_thread_errors
from engine.files.naming import shown

Task = Callable[[int, int], None]  # (worker, piece)

THREADS_VARIABLE = "ENGINE_NUM_THREADS"
_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


def thread_count() -> int:
    """ENGINE_NUM_THREADS, or the number of processors that this process may use."""
    text = os.environ.get(THREADS_VARIABLE, "").strip()
    if not text:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    count = parse_integer(text)
    if not count:
        raise InputError(f"{THREADS_VARIABLE}: expected a number of threads, got {shown(text)!r}")
    return count


class Workers:
    """The threads of one program, and the scratch memory that its ops share one after the other.

    Threads start at the first run that needs them, are started again after a fork, end when nobody
    has these any more, and never keep the interpreter alive. The calling thread is worker 0.
    """

    def __init__(self, count: int | None = None) -> None:
        wanted = thread_count() if count is None else count
        assert wanted > 0
        self.count = wanted if blas.loaded() is not None else 1
        self._begin()
        self._needed = 0
        self._apart = Apart()
        self._scratch: list[Array] = []
        self._shared_needed: dict[str, int] = {}
        self._shared: dict[str, Array] = {}

    # ------------------------------------------------------------ threads

    def run(self, task: Task, pieces: int) -> None:
        """Call task(worker, piece) once for every piece; return when all are done."""
        if self.count == 1 or pieces <= 1:
            for piece in range(pieces):
                task(0, piece)
            return
        self._start_threads()
        self._apart.keep(self._threads)
        job = _Job(task, pieces)
        for _ in range(min(self.count, pieces) - 1):
            self._jobs.put(job)
        try:
            job.work(0)
            job.wait()
        except BaseException:  # an interrupt, for one: the others must not write into what is next
            job.abandon()
            raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the BLAS on one thread meanwhile; every op is run inside this.

        The setting belongs to the process: other users of NumPy share it until the block ends.
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
            _dismiss(self._jobs, self._threads)
            for thread in self._threads:
                thread.join()
        self._threads.clear()
        self._scratch = []
        self._shared = {}

    def _begin(self) -> None:
        self._process = os.getpid()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        finalize(self, _dismiss, self._jobs, self._threads).atexit = False

    def _start_threads(self) -> None:
        if self._process != os.getpid():  # a fork copies the queue but not the threads
            self._begin()
        while len(self._threads) < self.count - 1:
            number = len(self._threads) + 1
            thread = threading.Thread(
                target=_serve, args=(self._jobs, number), name=f"engine-{number}", daemon=True
            )
            with translate_thread_errors("cpu"):
                thread.start()
            self._threads.append(thread)

    # ------------------------------------------------------------ scratch memory

    def reserve(self, *sizes: int) -> None:
        """Ask for room for arrays of these many bytes on each worker, all at one time."""
        self._needed = max(self._needed, _room(sizes))

    def reserve_shared(self, name: str, *sizes: int) -> None:
        """Ask for room that all workers see; what has another `name` lies elsewhere."""
        self._shared_needed[name] = max(self._shared_needed.get(name, 0), _room(sizes))

    def carve(self, worker: int, dtype: DTypeLike, *shapes: tuple[int, ...]) -> list[Array]:
        """Return arrays in the worker's scratch; the next op that carves writes over them."""
        if not self._scratch or len(self._scratch[0]) < self._needed:
            self._scratch = [np.empty(self._needed, np.uint8) for _ in range(self.count)]
        return _carve(self._scratch[worker], np.dtype(dtype), shapes)

    def carve_shared(self, name: str, dtype: DTypeLike, *shapes: tuple[int, ...]) -> list[Array]:
        """Return arrays that all workers see; the next op that carves `name` writes over them."""
        needed = self._shared_needed[name]
        if name not in self._shared or len(self._shared[name]) < needed:
            self._shared[name] = np.empty(needed, np.uint8)
        return _carve(self._shared[name], np.dtype(dtype), shapes)

    @property
    def workspace_bytes(self) -> int:
        return self._needed * self.count + sum(self._shared_needed.values())


class _Job:
    """One task and its pieces, taken by whichever worker is free."""

    def __init__(self, task: Task, pieces: int) -> None:
        self._task = task
        self._pieces = pieces
        self._taken = itertools.count()  # next() is atomic: no lock is needed to share it
        self._finished = itertools.count(1)
        self._done = threading.Lock()
        self._done.acquire()
        self._error: BaseException | None = None
        self._helpers = 0
        self._is_abandoned = False
        self._changed = threading.Condition()

    def help(self, worker: int) -> None:
        """Work on it, unless it was abandoned before this thread came to it."""
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
        """Return when nobody works on it any more."""
        while True:
            try:
                with self._changed:
                    self._is_abandoned = True
                    self._error = self._error or InterruptedError()  # what is left is skipped
                    self._changed.wait_for(lambda: self._helpers == 0)
                    return
            except KeyboardInterrupt:  # again: the first one is on its way already
                continue

    def work(self, worker: int) -> None:
        while (piece := next(self._taken)) < self._pieces:
            try:
                if self._error is None:
                    self._task(worker, piece)
            except BaseException as error:  # handed to the thread that called run
                self._error = error
            finally:
                if next(self._finished) == self._pieces:
                    self._done.release()

    def wait(self) -> None:
        self._done.acquire()
        if self._error is not None:
            raise self._error


def _serve(jobs: SimpleQueue[_Job | None], worker: int) -> None:
    with np.errstate(all="ignore"):  # each thread has its own; infinities and NaN are values here
        while (job := jobs.get()) is not None:
            job.help(worker)
            del job  # an idle thread must not keep the arrays of the last op alive


def _dismiss(jobs: SimpleQueue[_Job | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        jobs.put(None)


def _room(sizes: tuple[int, ...]) -> int:
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
