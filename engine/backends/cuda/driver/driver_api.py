"""The driver calls of every run, through the C interface, for any thread.

They are short and hold the GIL: a thread that releases it may wait long to get it back from busy
threads. Only waiting for the device and pinning memory release it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from engine.backends.cuda.driver import library, pycuda_loader

_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: independent of the legacy default stream
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
    """Driver calls for one context. Streams and events are the driver's own handles.

    Those made by `checked` take the arguments of the driver's function, and raise its errors.
    """

    def __init__(self, name: str, context: int) -> None:
        cuda, slow = libcuda(), library.declare(pycuda_loader.libcuda(), _RELEASING)
        self._query = cuda.cuEventQuery
        self._check = partial(pycuda_loader.check, device=name)
        checked = partial(_checked, cuda, self._check)
        waiting = partial(_checked, slow, self._check)
        self.enter = checked("cuCtxPushCurrent_v2", context)  # on this thread's stack of contexts
        self.leave = checked("cuCtxPopCurrent_v2", ctypes.byref(_p()))
        self.free_stream = checked("cuStreamDestroy_v2")
        self.free_event = checked("cuEventDestroy_v2")
        self.record = checked("cuEventRecord")  # event, stream
        self.upload = checked("cuMemcpyHtoDAsync_v2")  # target, source, size, stream
        self.download = checked("cuMemcpyDtoHAsync_v2")
        self.move = checked("cuMemcpyDtoDAsync_v2")
        self.wait = waiting("cuEventSynchronize")  # event; blocks the caller
        self.unregister = waiting("cuMemHostUnregister")  # pointer
        self._register = waiting("cuMemHostRegister_v2")
        self._wait_event = checked("cuStreamWaitEvent")
        self._new_stream, self._new_event = checked("cuStreamCreate"), checked("cuEventCreate")

    def new_stream(self) -> int:
        """Return a new stream, which is independent of the legacy default stream."""
        return _made(self._new_stream, NON_BLOCKING)

    def event(self) -> int:
        return _made(self._new_event, _NO_TIMING)

    def wait_for(self, stream: int, event: int) -> None:
        """Make the stream wait for the event, without blocking the caller."""
        self._wait_event(stream, event, 0)

    def is_done(self, event: int) -> bool:
        status: int = self._query(event)
        if status not in (0, _NOT_READY):
            self._check("cuEventQuery", status)
        return status == 0

    def is_page_locked(self, pointer: int) -> bool:
        """Return whether the driver knows the memory as pinned, or cannot say."""
        kind = ctypes.c_uint()
        asked, answers = (ctypes.c_int * 1)(_KIND_OF_MEMORY), (_p * 1)(ctypes.addressof(kind))
        status = libcuda().cuPointerGetAttributes(1, asked, answers, pointer)
        return status != 0 or kind.value != 0

    def register(self, pointer: int, size: int) -> None:
        """Pin host memory."""
        self._register(pointer, size, _FOR_ALL_CONTEXTS)

    def is_mapped(self, pointer: int) -> bool:
        """Return whether kernels can read pinned host memory at its own address."""
        made = _p()
        status = libcuda().cuMemHostGetDevicePointer_v2(ctypes.byref(made), pointer, 0)
        return status == 0 and made.value == pointer


def _checked(
    cuda: ctypes.CDLL, check: Callable[[str, int], None], name: str, *first: Any
) -> Callable[..., None]:
    """Return a function of the driver that raises its errors, with its first arguments bound."""
    function, shown = getattr(cuda, name), name.removesuffix("_v2")

    def call(*arguments: Any) -> None:
        if status := function(*first, *arguments):
            check(shown, status)

    return call


def _made(create: Callable[..., None], flags: int) -> int:
    made = _p()
    create(ctypes.byref(made), flags)
    assert made.value is not None
    return made.value
