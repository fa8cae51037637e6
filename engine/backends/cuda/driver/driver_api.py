"""The driver calls of every run, through the C interface, for any thread.

They are short and hold the GIL: a thread that releases it may wait long to get it back from busy
threads. Only waiting for the device and pinning memory release it.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

from engine.backends.cuda.driver import library, pycuda_loader
from engine.errors import DeviceError

_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_FOR_ALL_CONTEXTS = 1  # CU_MEMHOSTREGISTER_PORTABLE
_KIND_OF_MEMORY = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE; 0 for unknown memory
_NOT_READY = 600
_p, _size = ctypes.c_void_p, ctypes.c_size_t
_ARGUMENTS = {
    "cuCtxPushCurrent_v2": (_p,),
    "cuCtxPopCurrent_v2": (_p,),
    "cuStreamCreate": (_p, ctypes.c_uint),
    "cuStreamDestroy_v2": (_p,),
    "cuEventCreate": (_p, ctypes.c_uint),
    "cuEventDestroy_v2": (_p,),
    "cuEventRecord": (_p, _p),
    "cuEventQuery": (_p,),
    "cuStreamWaitEvent": (_p, _p, ctypes.c_uint),
    "cuMemcpyHtoDAsync_v2": (_p, _p, _size, _p),
    "cuMemcpyDtoHAsync_v2": (_p, _p, _size, _p),
    "cuMemcpyDtoDAsync_v2": (_p, _p, _size, _p),
    "cuGraphLaunch": (_p, _p),
    "cuMemHostGetDevicePointer_v2": (_p, _p, ctypes.c_uint),
    "cuPointerGetAttributes": (ctypes.c_uint, _p, _p, _p),
}
_RELEASING = {  # the GIL
    "cuEventSynchronize": (_p,),
    "cuMemHostRegister_v2": (_p, _size, ctypes.c_uint),
    "cuMemHostUnregister": (_p,),
}


@lru_cache(maxsize=1)
def libcuda() -> ctypes.PyDLL:
    """Return the driver's library; its functions hold the GIL."""
    return library.declare(ctypes.PyDLL(library.require(library.DRIVER)), _ARGUMENTS)


class DriverApi:
    """Driver calls for one context. Streams and events are the driver's own handles."""

    def __init__(self, name: str, context: int) -> None:
        self._name = name
        self._context = context
        self._popped = ctypes.byref(_p())
        cuda = libcuda()
        self._push, self._pop = cuda.cuCtxPushCurrent_v2, cuda.cuCtxPopCurrent_v2
        self._record, self._query = cuda.cuEventRecord, cuda.cuEventQuery
        self._wait_event = cuda.cuStreamWaitEvent
        self._upload, self._download = cuda.cuMemcpyHtoDAsync_v2, cuda.cuMemcpyDtoHAsync_v2
        self._move = cuda.cuMemcpyDtoDAsync_v2
        slow = library.declare(library.load(library.DRIVER), _RELEASING)
        self._synchronize = slow.cuEventSynchronize
        self._register, self._unregister = slow.cuMemHostRegister_v2, slow.cuMemHostUnregister

    def enter(self) -> None:
        """Push the context on this thread's stack of contexts."""
        if status := self._push(self._context):
            self._fail("cuCtxPushCurrent", status)

    def leave(self) -> None:
        if status := self._pop(self._popped):
            self._fail("cuCtxPopCurrent", status)

    def new_stream(self) -> int:
        """Return a new stream, which is independent of the legacy default stream."""
        made = _p()
        if status := libcuda().cuStreamCreate(ctypes.byref(made), _NON_BLOCKING):
            self._fail("cuStreamCreate", status)
        assert made.value is not None
        return made.value

    def free_stream(self, stream: int) -> None:
        if status := libcuda().cuStreamDestroy_v2(stream):
            self._fail("cuStreamDestroy", status)

    def event(self) -> int:
        made = _p()
        if status := libcuda().cuEventCreate(ctypes.byref(made), _NO_TIMING):
            self._fail("cuEventCreate", status)
        assert made.value is not None
        return made.value

    def free_event(self, event: int) -> None:
        if status := libcuda().cuEventDestroy_v2(event):
            self._fail("cuEventDestroy", status)

    def record(self, event: int, stream: int) -> None:
        if status := self._record(event, stream):
            self._fail("cuEventRecord", status)

    def wait_for(self, stream: int, event: int) -> None:
        """Make the stream wait for the event, without blocking the caller."""
        if status := self._wait_event(stream, event, 0):
            self._fail("cuStreamWaitEvent", status)

    def is_done(self, event: int) -> bool:
        status: int = self._query(event)
        if status not in (0, _NOT_READY):
            self._fail("cuEventQuery", status)
        return status == 0

    def wait(self, event: int) -> None:
        """Block the caller until the event has happened."""
        if status := self._synchronize(event):
            self._fail("cuEventSynchronize", status)

    def upload(self, target: int, source: int, size: int, stream: int) -> None:
        if status := self._upload(target, source, size, stream):
            self._fail("cuMemcpyHtoDAsync", status)

    def is_page_locked(self, pointer: int) -> bool:
        """Return whether the driver knows the memory as pinned, or cannot say."""
        kind = ctypes.c_uint()
        asked, answers = (ctypes.c_int * 1)(_KIND_OF_MEMORY), (_p * 1)(ctypes.addressof(kind))
        status = libcuda().cuPointerGetAttributes(1, asked, answers, pointer)
        return status != 0 or kind.value != 0

    def download(self, target: int, source: int, size: int, stream: int) -> None:
        if status := self._download(target, source, size, stream):
            self._fail("cuMemcpyDtoHAsync", status)

    def move(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy from one address on the card to another."""
        if status := self._move(target, source, size, stream):
            self._fail("cuMemcpyDtoDAsync", status)

    def register(self, pointer: int, size: int) -> None:
        """Pin host memory."""
        if status := self._register(pointer, size, _FOR_ALL_CONTEXTS):
            self._fail("cuMemHostRegister", status)

    def is_mapped(self, pointer: int) -> bool:
        """Return whether kernels can read pinned host memory at its own address."""
        made = _p()
        status = libcuda().cuMemHostGetDevicePointer_v2(ctypes.byref(made), pointer, 0)
        return status == 0 and made.value == pointer

    def unregister(self, pointer: int) -> None:
        if status := self._unregister(pointer):
            self._fail("cuMemHostUnregister", status)

    def _fail(self, name: str, status: int) -> None:
        reason = pycuda_loader.status_text(status)
        raise DeviceError(f"{self._name}: {name}: {reason}{pycuda_loader.hint(reason)}")
