"""The state of an open device: its primary context, streams, cuBLAS and loaded kernels.

PyTorch and CuPy use the same primary context. It is always current on the device's worker thread,
and on other threads only while they hold the enqueue lock, so that it never interferes with other
libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from engine.backends.cuda.driver import compiler, cublas, graphs, pycuda_loader
from engine.backends.cuda.driver.driver_api import NON_BLOCKING, DriverApi
from engine.backends.cuda.driver.loaded_kernels import Kernels
from engine.backends.cuda.driver.pinned_memory import PinnedMemory
from engine.backends.cuda.driver.worker import Worker
from engine.errors import DeviceError

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Card:
    """Properties of a device."""

    model: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int  # bytes
    clock: float = 0.0  # maximum, in Hz; 0 if unknown
    bandwidth: float = 0.0  # peak of its memory, in bytes per second; 0 if unknown


class EnqueueLock:
    """Inside the block only this thread enqueues on the device, and its context is current."""

    def __init__(self, driver_api: Any) -> None:
        self.lock = RLock()  # reentrant for the device's own thread
        self._driver_api = driver_api

    def __enter__(self) -> None:
        self.lock.acquire()
        try:
            self._driver_api.enter()
        except BaseException:
            self.lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._driver_api.leave()
        finally:
            self.lock.release()


class Context:
    """An open device. Its worker thread runs what allocates, records or frees.

    Recorded graphs are launched by any thread that holds `enqueue_lock`, because a round trip
    to the worker thread would take longer. Methods below `close`, `free_memory` and those that
    measure run on the worker thread.
    """

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self._index = index
        self._open_parts = ExitStack()  # closes what is open, in the reverse order
        self._worker = Worker(name)
        try:
            self._worker.run(self._open)
        except BaseException:
            with suppress(Exception):  # the error that made the device unusable says more
                self._worker.close(self._open_parts.close, is_clean=False)
            raise

    def run(
        self, function: Callable[[], _Result], undo: Callable[[_Result], object] | None = None
    ) -> _Result:
        """Run on the worker thread; errors of the driver become DeviceErrors.

        If the caller is interrupted, `undo` frees the unclaimed result there.
        """
        return self._worker.run(partial(self._translated, function), undo)

    def _translated(self, function: Callable[[], _Result]) -> _Result:
        with self.enqueue_lock.lock, pycuda_loader.translate_errors(self.name):
            return function()

    def held(self) -> AbstractContextManager[None]:
        """Return a block that keeps the driver's context alive, even if this one is closed."""
        return pycuda_loader.primary_context(self._index)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make the driver's context the current one of this thread inside the block."""
        self.check_process()
        self.driver_api.enter()
        try:
            yield
        finally:
            self.driver_api.leave()

    @property
    def is_own_process(self) -> bool:
        """Whether this process opened the device; a forked child cannot use it."""
        return self._worker.is_own_process

    def check_process(self) -> None:
        self._worker.check_process()

    def wait(self, event: int) -> None:
        """Block the calling thread until the event has happened; no context has to be current."""
        if not self.driver_api.is_done(event):
            self.driver_api.wait(event)

    def zero(self, pointer: int, size: int) -> None:
        """Enqueue filling `size` bytes, a multiple of 4, with zeros."""
        self.driver.memset_d32_async(pointer, 0, size // 4, self.stream)

    def free_memory(self) -> int:
        """Return the free bytes of device memory, as seen by all processes."""
        free: int = self.driver.mem_get_info()[0]
        return free

    def time_of(self, enqueue: Callable[[], None]) -> float:
        """Return the milliseconds that the device takes for what is enqueued."""
        start, end = self.driver.Event(), self.driver.Event()
        start.record(self.stream)
        enqueue()
        end.record(self.stream)
        end.synchronize()
        return float(end.time_since(start))

    def recorded_time_of(self, enqueue: Callable[[], None], repeats: int) -> float:
        """Return the median milliseconds of what is enqueued, recorded as a graph."""
        recorded = graphs.record(self.stream.handle, enqueue)
        try:
            recorded.launch()
            return float(np.median([self.time_of(recorded.launch) for _ in range(repeats)]))
        finally:
            self.stream.synchronize()
            recorded.close()

    def post(self, function: Callable[[], object]) -> None:
        """Run on the worker thread later, without waiting: for finalizers."""
        self._worker.post(partial(self._translated, function))

    def close(self) -> None:
        self._worker.close(self._close)

    def kernels(self, precision: str) -> Kernels:
        """Return the kernels that store activations in this precision."""
        stored = "float32" if precision == "tf32" else precision
        if stored not in self._kernels:
            self._kernels[stored] = Kernels(self.card.capability, stored, self.kernels)
        return self._kernels[stored]

    def _open(self) -> None:
        self.driver = pycuda_loader.load()
        index, found = self._index, pycuda_loader.count()
        if index >= found:
            known = ", ".join(f"cuda:{each}" for each in range(found))
            raise DeviceError(f"{self.name}: no such device; found {known}")
        pycuda_loader.check_version(cublas.named_version())
        device = self.driver.Device(index)
        self.card = _describe(self.driver, device)
        if self.card.capability < compiler.OLDEST:
            raise DeviceError(
                f"{self.name}: {self.card.model}: expected compute capability "
                f"{_dotted(compiler.OLDEST)} or later, got {_dotted(self.card.capability)}"
            )
        with pycuda_loader.translate_errors(self.name), pycuda_loader.primary_context(index):
            self._enter(device)

    def _enter(self, device: Any) -> None:
        primary = device.retain_primary_context()
        # PyCUDA's destructor would detach a context instead of releasing this one.
        self._open_parts.callback(primary.detach)
        primary.push()
        self.driver_api = DriverApi(self.name, primary.handle)
        self.enqueue_lock = EnqueueLock(self.driver_api)
        self._open_parts.callback(self._drop_streams)
        self.stream = self.driver.Stream(NON_BLOCKING)
        self.copy_stream = self.driver.Stream(NON_BLOCKING)  # inputs arrive during computation
        self.side_stream = self.driver.Stream(NON_BLOCKING)  # independent branches of a run
        self._kernels: dict[str, Kernels] = {}
        self._open_parts.callback(self._close_kernels)
        self._blas_memory = self._open_parts.enter_context(ExitStack())
        self.blas = cublas.Blas(self.stream.handle, self._blas_workspace)
        self._open_parts.callback(self.blas.close)
        self.pinned_memory = PinnedMemory(self.driver_api, self.post)
        self._open_parts.callback(self.pinned_memory.close)
        self._open_parts.callback(lambda: self.stream.synchronize())

    def _blas_workspace(self) -> tuple[int, int]:
        # NVIDIA recommends 32 MiB since Hopper and 4 MiB before.
        size = (32 if self.card.capability >= (9, 0) else 4) << 20
        block = self.driver.mem_alloc(size)
        self._blas_memory.callback(block.free)
        return int(block), size

    def _close(self) -> None:
        """Close all parts, also if some fail: the context must not stay on this thread's stack."""
        with pycuda_loader.translate_errors(self.name):
            self._open_parts.close()

    def _close_kernels(self) -> None:
        for each in self._kernels.values():
            each.close()
        self._kernels.clear()

    def _drop_streams(self) -> None:
        for name in ("stream", "copy_stream", "side_stream"):  # PyCUDA destroys what is dropped
            vars(self).pop(name, None)


def _describe(module: Any, device: Any) -> Card:
    attributes = module.device_attribute
    transfers = 2e3 * device.get_attribute(attributes.MEMORY_CLOCK_RATE)  # two in a clock
    return Card(
        model=device.name(),
        capability=device.compute_capability(),
        multiprocessors=device.get_attribute(attributes.MULTIPROCESSOR_COUNT),
        memory=device.total_memory(),
        clock=device.get_attribute(attributes.CLOCK_RATE) * 1e3,
        bandwidth=transfers * device.get_attribute(attributes.GLOBAL_MEMORY_BUS_WIDTH) / 8,
    )


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
