"""A CudaDevice whose driver is host memory and whose kernels, recorded or not, run on the CPU."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from itertools import count
from threading import Lock, RLock
from time import perf_counter
from types import SimpleNamespace
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import pytest

from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import graphs
from engine.backends.cuda.driver.context import Card, Context, EnqueueLock
from engine.backends.cuda.driver.pinned_memory import PinnedMemory
from engine.backends.cuda.driver.worker import Worker
from engine.backends.cuda.runtime.program import CudaProgram
from engine.plan.build import Plan
from tests.backends.cuda.host import DEFINES, HostBlas, HostKernels, build


class HostStream:
    """Does what it is given when somebody waits for it: as late as a device may. Or records it."""

    def __init__(self, handle: int = 1) -> None:
        self.handle = handle
        self.tape: list[Callable[[], None]] | None = None
        self._actions: deque[Callable[[], None]] = deque()
        self._given = self._done = 0
        self._lock = RLock()

    def do(self, action: Callable[[], None]) -> None:
        if self.tape is not None:
            self.tape.append(action)
        else:
            self._actions.append(action)
            self._given += 1

    def mark(self) -> int:
        """How many actions will have been done when all given so far are."""
        return self._given

    def reach(self, mark: int) -> None:
        with self._lock:
            while self._done < mark:
                action = self._actions.popleft()
                self._done += 1
                action()

    def has_reached(self, mark: int) -> bool:
        return self._done >= mark

    def wait_for_event(self, event: HostEvent) -> None:
        stream, mark = event.place
        self.do(partial(stream.reach, mark))

    def synchronize(self) -> None:
        assert self.tape is None, "waited while recording"
        self.reach(self.mark())


class HostEvent:
    """A place in what a stream has been given to do."""

    def __init__(self, flags: int = 0) -> None:
        self.place: tuple[HostStream, int] = HostStream(), 0
        self._at = 0.0

    def record(self, stream: HostStream) -> None:
        stream.do(self._note_time)
        self.place = stream, stream.mark()

    def _note_time(self) -> None:
        self._at = perf_counter()

    def query(self) -> bool:
        stream, mark = self.place
        return stream.has_reached(mark)

    def synchronize(self) -> None:
        stream, mark = self.place
        stream.reach(mark)

    def time_since(self, start: HostEvent) -> float:
        return (self._at - start._at) * 1e3


class HostBlock:
    """Memory with the manners of a DeviceAllocation; full of NaN until it is written."""

    def __init__(self, live: set[HostBlock], size: int) -> None:
        self.size = size
        self.is_page_locked = False
        self.__array_interface__: dict[str, Any] = {}
        self._live = live
        self._values = np.full(-(-size // 4) + 64, np.nan, np.float32)
        live.add(self)

    def __int__(self) -> int:
        return -(-self._values.ctypes.data // 64) * 64

    def free(self) -> None:
        self._live.remove(self)


class HostDriver:
    """A stand-in for the parts of pycuda.driver that a program uses."""

    def __init__(self, memory: int = 1 << 40) -> None:
        self.live: set[HostBlock] = set()
        self.memory = memory
        self.streams = tuple(map(HostStream, (1, 2, 3)))
        self.Context = SimpleNamespace(synchronize=self._synchronize)
        self.Event = HostEvent

    def _synchronize(self) -> None:
        for stream in self.streams:
            stream.synchronize()

    def get_driver_version(self) -> int:
        return 13000

    def mem_get_info(self) -> tuple[int, int]:
        return self.memory - sum(block.size for block in self.live), self.memory

    def mem_alloc(self, size: int) -> HostBlock:
        return HostBlock(self.live, size)

    def pagelocked_empty(self, values: int, kind: type[np.generic]) -> np.ndarray:
        block = HostBlock(self.live, values * np.dtype(kind).itemsize)
        block.is_page_locked = True
        place = (int(block), False)
        typestr = np.dtype(kind).str
        # This makes the block the base of the array, as PyCUDA does.
        facts = {"data": place, "shape": (values,), "typestr": typestr, "version": 3}
        block.__array_interface__ = facts
        return np.asarray(block)

    def memcpy_htod(self, out: int, src: np.ndarray) -> None:
        assert src.flags.c_contiguous
        ctypes.memmove(out, src.ctypes.data, src.nbytes)

    def memcpy_dtoh(self, out: np.ndarray, src: int) -> None:
        assert out.flags.c_contiguous
        ctypes.memmove(out.ctypes.data, src, out.nbytes)

    def memcpy_dtod_async(self, out: int, src: int, size: int, stream: HostStream) -> None:
        stream.do(partial(ctypes.memmove, out, src, size))

    def memset_d32_async(self, out: int, value: int, count: int, stream: HostStream) -> None:
        assert value == 0
        stream.do(partial(ctypes.memset, out, 0, count * 4))


class HostCalls:
    """A stand-in for DriverApi over host memory; streams and events are numbers."""

    def __init__(self, streams: tuple[HostStream, ...]) -> None:
        self.inside = 0  # threads that have the context
        self.events: dict[int, HostEvent] = {}
        self.registered: dict[int, int] = {}  # bytes of page-locked memory, by where it begins
        self._streams = {stream.handle: stream for stream in (HostStream(0), *streams)}
        self._numbers = count(1)

    def enter(self) -> None:
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1

    def new_stream(self) -> int:
        number = 100 + next(self._numbers)
        self._streams[number] = HostStream(number)
        return number

    def stream(self, number: int) -> HostStream:
        return self._streams[number]

    def free_stream(self, stream: int) -> None:
        del self._streams[stream]

    def event(self) -> int:
        number = next(self._numbers)
        self.events[number] = HostEvent()
        return number

    def free_event(self, event: int) -> None:
        del self.events[event]

    def record(self, event: int, stream: int) -> None:
        self.events[event].record(self._streams[stream])

    def wait_for(self, stream: int, event: int) -> None:
        self._streams[stream].wait_for_event(self.events[event])

    def register(self, pointer: int, size: int) -> None:
        assert pointer not in self.registered
        self.registered[pointer] = size

    def unregister(self, pointer: int) -> None:
        del self.registered[pointer]

    def is_done(self, event: int) -> bool:
        return self.events[event].query()

    def wait(self, event: int) -> None:
        self.events[event].synchronize()

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        self._streams[stream].do(partial(ctypes.memmove, target, source, size))

    def is_page_locked(self, pointer: int) -> bool:
        return any(begin <= pointer < begin + size for begin, size in self.registered.items())

    def is_mapped(self, pointer: int) -> bool:
        return self.is_page_locked(pointer)

    download = move = upload


_turn = Lock()


def run_alone(launch: Callable[..., None], *arguments: Any, **options: Any) -> None:
    """Launch while no other device does: blockIdx and its like are one for the process."""
    with _turn:
        launch(*arguments, **options)


class _TapedKernels(HostKernels):
    """The kernels of g++, launched when the stream says so."""

    def __init__(
        self,
        library: ctypes.CDLL | None,
        launched: set[str],
        storing: Callable[[str], _TapedKernels],
        stream_of: Callable[[int], HostStream],
    ) -> None:
        super().__init__(library)
        self._stream_of = stream_of
        self.launched = launched
        self.storing = storing

    def is_loaded(self, module: object) -> bool:
        return True

    def launch(self, *arguments: Any, stream: int, **options: Any) -> None:
        launch = partial(super().launch, *arguments, stream=stream, **options)
        self._stream_of(stream).do(partial(run_alone, launch))

    def tile(self, *_: object) -> SimpleNamespace:
        """Return what launches a function in place of a tensor-core kernel; see played_tiles.py."""
        return SimpleNamespace(launch=lambda play, *, stream: self._stream_of(stream).do(play))


class _TapedBlas(HostBlas):
    def __init__(self, stream: HostStream) -> None:
        self._stream = stream

    def allow_tf32(self, is_allowed: bool) -> None: ...

    def multiply(self, *arguments: Any) -> None:
        self._stream.do(partial(super().multiply, *arguments))


class _NoBlas:
    def allow_tf32(self, is_allowed: bool) -> None: ...

    def multiply(self, *arguments: Any) -> None: ...


class HostContext(Context):
    """A Context whose thread is real and everything else on the host."""

    card = Card("host", (7, 0), 4, 1 << 40)  # too old for any of kernels/conv/mma

    def __init__(
        self,
        name: str,
        *,
        memory: int,
        runs_kernels: bool,
        capability: tuple[int, int] = card.capability,
    ) -> None:
        self.name = name
        if capability != self.card.capability:
            self.card = Card("host", capability, 132, 1 << 40)
        self.driver = HostDriver(memory)
        self.stream, self.copy_stream, self.side_stream = self.driver.streams
        self.blas = _TapedBlas(self.stream) if runs_kernels else _NoBlas()
        self.launched: set[str] = set()
        self.driver_api = HostCalls(self.driver.streams)
        self.enqueue_lock = EnqueueLock(self.driver_api)
        self.pinned_memory = PinnedMemory(self.driver_api, self.post)
        self._runs_kernels = runs_kernels
        self._worker = Worker(name)

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def kernels(self, precision: str) -> HostKernels:
        library = build(*DEFINES[precision]) if self._runs_kernels else None
        stream_of = self.driver_api.stream
        return _TapedKernels(library, self.launched, self.kernels, stream_of)

    def _translated(self, function: Callable[[], Any]) -> Any:
        with self.enqueue_lock.lock:  # the host has no driver errors to translate
            return function()

    def _close(self) -> None:
        self.pinned_memory.close()


class HostDevice(CudaDevice):
    """CudaDevice as it is, over a context that needs no GPU."""

    def __init__(
        self,
        *,
        name: str = "host",
        memory: int = 1 << 40,
        runs_kernels: bool = True,
        capability: tuple[int, int] = HostContext.card.capability,
    ) -> None:
        """Without `runs_kernels` they are only noted in `launched`, and results are noise.

        A card with tensor cores runs within played_tiles.playing().
        """
        self.name = name
        self.measured = {}
        self._tuner = None
        self._turn = Lock()
        self._programs = WeakSet()
        self._decoders = []
        self._index = 0
        self.context = HostContext(
            name, memory=memory, runs_kernels=runs_kernels, capability=capability
        )
        self._context = self.context

    def compile(
        self, plan: Plan, *, tune: bool = False, waits: bool = True, **options: Any
    ) -> CudaProgram:
        """Without measuring: times on the host mean nothing."""
        return super().compile(plan, tune=tune, waits=waits, **options)


class TapeGraph:
    """What a recording leaves behind: the enqueued actions, with the arguments of that time."""

    def __init__(self, tape: list[Callable[[], None]], stream: HostStream) -> None:
        self._tape = tape
        self._stream = stream

    def launch(self) -> None:
        for action in self._tape:
            self._stream.do(action)

    def close(self) -> None:
        self._tape = []


Host = TypeVar("Host", bound=HostDevice)


@contextmanager
def on_tape(device: Host) -> Iterator[Host]:
    """The device, whose runs are recorded as a card's are, until it is closed."""
    with pytest.MonkeyPatch.context() as patch, closing(device):
        patch.setattr(graphs, "record", record_on(device.context))
        yield device


def record_on(context: HostContext) -> Callable[[int, Callable[[], None]], TapeGraph]:
    """What to put in the place of `graph.record`: one tape of both streams, in the order given."""
    streams = context.stream, context.side_stream

    def record(handle: int, enqueue: Callable[[], None]) -> TapeGraph:
        tape: list[Callable[[], None]] = []
        try:
            for each in streams:
                each.tape = tape
            enqueue()
        finally:
            for each in streams:
                each.tape = None
        return TapeGraph(tape, context.stream)

    return record
