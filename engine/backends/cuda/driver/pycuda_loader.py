"""PyCUDA's driver module: imported late, every reason why it cannot be told in one line."""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from threading import Event
from typing import Any

from engine import extras
from engine.backends.cuda.driver import library
from engine.errors import DeviceError

_LAST_WORDS = ("illegal", "unspecified launch failure", "misaligned", "assert", "ECC", "lost")


@lru_cache(maxsize=1)
def load() -> Any:
    """`pycuda.driver`, initialised; it has made no context."""
    cuda = library.load(library.DRIVER)  # PyCUDA then finds it by name wherever it lies
    cuda.cuInit(0)  # takes long, and PyCUDA, which tells of errors, would keep Python's lock
    try:
        driver = importlib.import_module("pycuda.driver")
    except ModuleNotFoundError as error:
        raise DeviceError(f"cuda: {error.name} is not installed. {_install()}") from None
    except ImportError as error:
        raise DeviceError(f"cuda: pycuda cannot be imported: {error}. {_install()}") from error
    try:
        driver.init()
    except driver.Error as error:
        raise DeviceError(f"cuda: {_reason(error)}{_visible_devices()}") from None
    return driver


def _install() -> str:
    return f"Run: {extras.command('cuda13')}"


def count() -> int:
    """How many devices this process may use; at least one."""
    found: int = load().Device.count()
    if found == 0:
        raise DeviceError(f"cuda: no device found{_visible_devices()}")
    return found


def check_version(cublas_version: str) -> None:
    """A driver runs libraries of its own major version and of older ones."""
    version = load().get_driver_version()
    major, minor = version // 1000, version % 1000 // 10
    if int(cublas_version.split(".")[0]) > major:
        raise DeviceError(
            f"cuda: the driver is for CUDA {major}.{minor}, cuBLAS {cublas_version} needs a newer "
            f"one. Update the driver, or run: {extras.command('cuda12')}"
        )


@contextmanager
def awake(index: int) -> Iterator[None]:
    """Inside, a device has its primary context; making it takes long, but keeps no lock."""
    cuda, device, context = _libcuda(), ctypes.c_int(), ctypes.c_void_p()
    is_awake = (
        cuda.cuDeviceGet(ctypes.byref(device), index) == 0
        and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    )
    try:
        yield  # where it failed, PyCUDA will fail too and tell of it
    finally:
        if is_awake:
            cuda.cuDevicePrimaryCtxRelease_v2(device)


def keep_awake(indices: Iterable[int] | None, is_over: Event) -> None:
    """Wake devices, or all; when it is over let those sleep again that nobody has opened."""
    with ExitStack() as stack, suppress(DeviceError):  # whoever opens them is told
        cuda, count = _libcuda(), ctypes.c_int()
        cuda.cuInit(0)
        if indices is None:
            cuda.cuDeviceGetCount(ctypes.byref(count))
        for index in range(count.value) if indices is None else indices:
            stack.enter_context(awake(index))
        is_over.wait()


@contextmanager
def told(name: str) -> Iterator[None]:
    """Turn errors of PyCUDA inside the block into DeviceErrors of the device `name`."""
    driver = load()
    try:
        yield
    except driver.MemoryError:
        free, total = driver.mem_get_info()
        raise DeviceError(
            f"{name}: out of memory: {gib(free)} of {gib(total)} free. "
            "Try a smaller batch, or --device cpu"
        ) from None
    except driver.Error as error:
        reason = _reason(error)
        raise DeviceError(f"{name}: {reason}{hint(reason)}") from error


def hint(reason: str) -> str:
    """What to do after an error that a process cannot recover from."""
    return ". Start a new process" if any(word in reason for word in _LAST_WORDS) else ""


def status_text(status: int) -> str:
    """What the driver says that a status means."""
    text = ctypes.c_char_p()
    _libcuda().cuGetErrorString(status, ctypes.byref(text))
    return text.value.decode() if text.value else f"status {status}"


def current_handle() -> int:
    """The context that is current on this thread."""
    handle = ctypes.c_void_p()
    _call("cuCtxGetCurrent", ctypes.byref(handle))
    assert handle.value is not None
    return handle.value


@lru_cache(maxsize=1)
def _libcuda() -> ctypes.CDLL:
    return library.load(library.DRIVER)


def _call(name: str, argument: Any) -> None:
    status = getattr(_libcuda(), name)(argument)
    if status != 0:
        raise DeviceError(f"cuda: {name}: status {status}")


def gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _reason(error: Exception) -> str:
    """PyCUDA says "cuInit failed: no CUDA-capable device is detected"."""
    return str(error).strip().splitlines()[0]


def _visible_devices() -> str:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if chosen is None else f". CUDA_VISIBLE_DEVICES is {chosen!r}"
