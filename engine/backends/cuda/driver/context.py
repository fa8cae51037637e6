"""What lives on a device's thread: the primary context, its streams, cuBLAS, the loaded kernels.

The primary context is the one that PyTorch and CuPy use too. It is current on that thread, and on
others for as long as a turn of theirs lasts, so that no library ever finds it in its way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import RLock
from types import TracebackType
from typing import Any, TypeVar

from engine.backends.cuda.driver import compiler, cublas, pycuda_loader
from engine.backends.cuda.driver.cublas import Blas, LateBlas
from engine.backends.cuda.driver.driver_api import DriverApi
from engine.backends.cuda.driver.loaded_kernels import Kernels
from engine.backends.cuda.driver.pinned_memory import PinnedMemory
from engine.backends.cuda.driver.worker import Worker
from engine.errors import DeviceError

_Result = TypeVar("_Result")

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: the default stream of others does not wait for it


@dataclass(frozen=True)
class Card:
    """What the device is."""

    model: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int  # bytes
    clock: float = 0.0  # in Hz at most; 0 where it is not known
    bandwidth: float = 0.0  # bytes a second to and from its memory at most; 0 likewise


class Turn:
    """Inside, this thread alone enqueues on the device, and its context is current here."""

    def __init__(self, calls: Any) -> None:
        self.lock = RLock()  # again and again on the device's own thread
        self._calls = calls

    def __enter__(self) -> None:
        self.lock.acquire()
        try:
            self._calls.enter()
        except BaseException:
            self.lock.release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._calls.leave()
        finally:
            self.lock.release()


class Context:
    """Hands functions to the thread; what follows `close` is for that thread.

    What is allocated, recorded or freed goes to the thread. What was recorded is launched by
    whoever wants it, in a `turn`: waking a thread and being warm_up by it takes longer.
    """

    calls: DriverApi
    turn: Turn
    pins: PinnedMemory

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self._worker = Worker(name)
        try:
            self._worker.run(lambda: self._open(index))
        except BaseException:
            self._worker.close(lambda: None, is_clean=False)
            raise

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Run on the device's thread; errors of the device come back as DeviceErrors."""
        return self._worker.run(partial(self._told, function))

    def _told(self, function: Callable[[], _Result]) -> _Result:
        with self.turn.lock, pycuda_loader.told(self.name):
            return function()

    @property
    def is_here(self) -> bool:
        """Whether this process opened the device: a forked child has only its memory of it."""
        return self._worker.is_here

    def check_process(self) -> None:
        self._worker.check_process()

    def wait(self, event: int) -> None:
        """Wait for an event on the caller's thread."""
        calls = self.calls
        if calls.has_happened(event):
            return
        calls.enter()
        try:
            calls.wait(event)
        finally:
            calls.leave()

    def post(self, function: Callable[[], object]) -> None:
        """Run on the device's thread some time: for finalizers."""
        self._worker.post(partial(self._told, function))

    def close(self) -> None:
        self._worker.close(self._close)

    def kernels(self, precision: str) -> Kernels:
        """The kernels that store activations in this precision, loaded once."""
        if precision not in self._kernels:
            contents = compiler.image(self.card.capability, precision)
            others = partial(self.kernels, "float32") if precision == "float16" else None
            self._kernels[precision] = Kernels(
                self.driver, contents, self.card.capability, in_floats=others
            )
        return self._kernels[precision]

    def _open(self, index: int) -> None:
        self.driver = pycuda_loader.load()
        found = pycuda_loader.count()
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
        with pycuda_loader.told(self.name), pycuda_loader.awake(index):
            self._enter(device)

    def _enter(self, device: Any) -> None:
        self._primary = device.retain_primary_context()
        self._primary.push()
        self.calls = DriverApi(self.name, pycuda_loader.current_handle())
        self.turn = Turn(self.calls)
        self.stream = self.driver.Stream(_NON_BLOCKING)
        self.copies = self.driver.Stream(_NON_BLOCKING)  # what arrives while the other computes
        self.beside = self.driver.Stream(_NON_BLOCKING)  # parts of a run that need not wait
        self.pins = PinnedMemory(self.calls, self.post)
        self._workspace: Any = None
        self.blas: Blas = LateBlas(self._open_blas)
        self._kernels: dict[str, Kernels] = {}

    def _open_blas(self) -> Blas:
        # 32 MiB is what cuBLAS asks for from Hopper on, 4 MiB before.
        size = (32 if self.card.capability >= (9, 0) else 4) << 20
        self._workspace = self.driver.mem_alloc(size)
        return Blas(self.stream.handle, workspace=int(self._workspace), workspace_bytes=size)

    def _close(self) -> None:
        self.stream.synchronize()
        self.pins.close()
        self.blas.close()
        if self._workspace is not None:
            self._workspace.free()
        for each in self._kernels.values():
            each.close()
        self._kernels.clear()
        del self.stream, self.copies, self.beside
        # Not left to its destructor, which would detach a context instead of releasing ours.
        self._primary.detach()


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
