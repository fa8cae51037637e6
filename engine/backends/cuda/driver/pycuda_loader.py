"""PyCUDA's driver module, imported lazily; every failure becomes a message of one line."""

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

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…
_LAST_WORDS = ("illegal", "unspecified launch failure", "misaligned", "assert", "ECC", "lost")


@lru_cache(maxsize=1)
def libcuda() -> ctypes.CDLL:
    """Return the driver's library; its functions release the GIL."""
    return library.load(library.DRIVER)


@lru_cache(maxsize=1)
def load() -> Any:
    """Return `pycuda.driver`, initialised, without creating a context."""
    # This lets PyCUDA find the loaded library by its name. It is slow, and PyCUDA would hold the
    # GIL; PyCUDA reports errors below.
    libcuda().cuInit(0)
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
    """Return the number of devices that this process may use, at least one."""
    found: int = load().Device.count()
    if found == 0:
        raise DeviceError(f"cuda: no device found{_visible_devices()}")
    return found


def cuda_of(driver: Any) -> tuple[int, int]:
    """Return the version of CUDA that a driver is for."""
    version = driver.get_driver_version()
    return version // 1000, version % 1000 // 10


def check_version(cublas_version: str) -> None:
    """Raise if cuBLAS needs a newer driver: a driver runs its own major version and older ones."""
    major, minor = cuda_of(load())
    if int(cublas_version.split(".")[0]) > major:
        raise DeviceError(
            f"cuda: the driver is for CUDA {major}.{minor}, cuBLAS {cublas_version} needs a newer "
            f"one. Update the driver, or run: {extras.command('cuda12')}"
        )


@contextmanager
def primary_context(index: int) -> Iterator[None]:
    """Retain a device's primary context; creating it is slow but does not hold the GIL."""
    cuda, device, context = libcuda(), ctypes.c_int(), ctypes.c_void_p()
    is_retained = (
        cuda.cuDeviceGet(ctypes.byref(device), index) == 0
        and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    )
    try:
        yield  # after a failure PyCUDA will fail as well, and report it
    finally:
        if is_retained:
            cuda.cuDevicePrimaryCtxRelease_v2(device)


def hold_primary_contexts(indices: Iterable[int] | None, is_over: Event) -> None:
    """Retain the primary contexts of devices, or of all, until `is_over` is set."""
    with ExitStack() as stack, suppress(DeviceError):  # opening a device reports its errors
        for index in _visible(indices):
            stack.enter_context(primary_context(index))
        is_over.wait()


def capabilities(indices: Iterable[int] | None) -> set[tuple[int, int]]:
    """Return the compute capabilities of devices, or of all, without creating a context."""
    cuda, found = libcuda(), set()
    for index in _visible(indices):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        asked = (_MAJOR, major), (_MINOR, minor)
        if cuda.cuDeviceGet(ctypes.byref(device), index) == 0 and not any(
            cuda.cuDeviceGetAttribute(ctypes.byref(value), which, device) for which, value in asked
        ):
            found.add((major.value, minor.value))
    return found


def _visible(indices: Iterable[int] | None) -> Iterable[int]:
    """Initialise the driver and return these devices, or all."""
    cuda, count = libcuda(), ctypes.c_int()
    cuda.cuInit(0)
    if indices is None:
        cuda.cuDeviceGetCount(ctypes.byref(count))
    return range(count.value) if indices is None else indices


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Turn errors of PyCUDA inside the block into DeviceErrors of the device `name`."""
    driver = load()
    try:
        yield
    except driver.MemoryError as error:
        if "Host" in (reason := _reason(error)):  # cuMemHostAlloc
            raise DeviceError(
                f"{name}: {reason}. No more of the host's memory can be page-locked. "
                "Try a smaller batch, or --device cpu"
            ) from None
        free, total = driver.mem_get_info()
        raise DeviceError(
            f"{name}: out of memory: {gib(free)} of {gib(total)} free. "
            "Try a smaller batch, or --device cpu"
        ) from None
    except driver.Error as error:
        reason = _reason(error)
        raise DeviceError(f"{name}: {reason}{_hint(reason)}") from error


def _hint(reason: str) -> str:
    """Return a hint if the error is one that a process cannot recover from."""
    return ". Start a new process" if any(word in reason for word in _LAST_WORDS) else ""


def check(name: str, status: int, device: str = "cuda") -> None:
    """Raise a DeviceError if the driver call `name` returned an error."""
    if status != 0:
        text = ctypes.c_char_p()
        libcuda().cuGetErrorString(status, ctypes.byref(text))
        reason = text.value.decode() if text.value else f"status {status}"
        raise DeviceError(f"{device}: {name}: {reason}{_hint(reason)}")


def call(name: str, *arguments: object) -> None:
    """Call a function of the driver, with ctypes values where they are no int; check its status."""
    check(name, getattr(libcuda(), name)(*arguments))


def gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _reason(error: Exception) -> str:
    """Return the first line of PyCUDA's message, as in "cuInit failed: no CUDA-capable device"."""
    return str(error).strip().splitlines()[0]


def _visible_devices() -> str:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if chosen is None else f". CUDA_VISIBLE_DEVICES is {chosen!r}"
