"""What PyCUDA cannot do, through the driver's own C interface: clusters, tensor maps, early starts.

A kernel of a cubin loaded here is launched with the driver's extended call; tensor maps describe to
the copy engine how an array lies in memory. All of it happens in the current context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.backends.cuda import library
from engine.errors import DeviceError

_CLUSTER, _EARLY_START = 4, 6  # CU_LAUNCH_ATTRIBUTE_*
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
HALF, FLOAT, TF32 = 6, 7, 11  # CU_TENSOR_MAP_DATA_TYPE_*; TF32 rounds floats on the way
_SWIZZLES = {32: 1, 64: 2, 128: 3}  # by bytes of a row
_PROMOTE_TO_256 = 3
_MAP_BYTES = 128


class _Value(ctypes.Union):
    _fields_ = (("cluster", ctypes.c_uint * 3), ("flag", ctypes.c_int), ("pad", ctypes.c_char * 64))


class _Attribute(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", _Value))


class _Configuration(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    return library.load(library.DRIVER)


def _check(name: str, status: int) -> None:
    if status == 0:
        return
    text = ctypes.c_char_p()
    _driver().cuGetErrorString(status, ctypes.byref(text))
    reason = text.value.decode() if text.value else f"status {status}"
    raise DeviceError(f"cuda: {name}: {reason}")


@dataclass(frozen=True)
class Function:
    """A kernel of a module loaded by `load`."""

    handle: int
    shared: int

    def launch(
        self,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        *,
        stream: int,
        cluster: int = 1,
        early: bool = False,
    ) -> None:
        """Enqueue; `arguments` are ctypes values. An early kernel starts while the one before it
        still runs, and waits for it by itself."""
        attributes = (_Attribute * 2)()
        attributes[0].kind, attributes[0].value.cluster[:] = _CLUSTER, (cluster, 1, 1)
        attributes[1].kind, attributes[1].value.flag = _EARLY_START, int(early)
        configuration = _Configuration(
            (blocks, 1, 1), (threads, 1, 1), self.shared, stream, attributes, 2
        )
        places = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        status = _driver().cuLaunchKernelEx(
            ctypes.byref(configuration), ctypes.c_void_p(self.handle), places, None
        )
        _check("cuLaunchKernelEx", status)


def load(image: bytes, name: str, shared: int) -> Function:
    """Load a cubin and return its kernel, allowed `shared` bytes of dynamic shared memory."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver = _driver()
    _check("cuModuleLoadData", driver.cuModuleLoadData(ctypes.byref(module), image))
    status = driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
    _check("cuModuleGetFunction", status)
    _check("cuFuncSetAttribute", driver.cuFuncSetAttribute(function, _DYNAMIC_SHARED, shared))
    assert function.value is not None
    return Function(function.value, shared)


class TensorMap(ctypes.Structure):
    """128 opaque bytes, on a border of 64."""

    _fields_ = (("words", ctypes.c_uint64 * 16),)
    _align_ = 64


def _aligned_map() -> TensorMap:
    """ctypes aligns to 16 bytes; the driver wants 64."""
    buffer = (ctypes.c_char * (_MAP_BYTES + 64))()
    offset = -ctypes.addressof(buffer) % 64
    return TensorMap.from_buffer(buffer, offset)


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution over an NHWC map, as the copy engine walks them."""

    pointer: int
    kind: int  # HALF, FLOAT, TF32
    value_bytes: int
    rows: int
    height: int
    width: int
    channels: int
    pitch: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]


def windows_map(windows: Windows, *, pixels: int, channels: int) -> TensorMap:
    """For slices of `pixels` windows by `channels` channels."""
    w = windows
    top, left, bottom, right = w.padding
    row = w.pitch * w.value_bytes
    lower = (ctypes.c_int * 2)(-left, -top)
    upper = (ctypes.c_int * 2)(
        right - (w.kernel[1] - 1) * w.dilation[1], bottom - (w.kernel[0] - 1) * w.dilation[0]
    )
    made = _aligned_map()
    status = _driver().cuTensorMapEncodeIm2col(
        ctypes.byref(made),
        *(ctypes.c_int(w.kind), ctypes.c_uint(4), ctypes.c_void_p(w.pointer)),
        (ctypes.c_uint64 * 4)(w.channels, w.width, w.height, w.rows),
        (ctypes.c_uint64 * 3)(row, row * w.width, row * w.width * w.height),
        *(lower, upper, ctypes.c_uint(channels), ctypes.c_uint(pixels)),
        (ctypes.c_uint * 4)(1, w.stride[1], w.stride[0], 1),
        *(0, _SWIZZLES[channels * w.value_bytes], _PROMOTE_TO_256, 0),
    )
    _check("cuTensorMapEncodeIm2col", status)
    return made


def matrix_map(
    pointer: int, kind: int, value_bytes: int, sides: tuple[int, int], box: tuple[int, int]
) -> TensorMap:
    """For boxes of (rows, columns) of a dense row-major matrix."""
    (rows, columns), (box_rows, box_columns) = sides, box
    made = _aligned_map()
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.byref(made),
        *(ctypes.c_int(kind), ctypes.c_uint(2), ctypes.c_void_p(pointer)),
        (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(columns * value_bytes),
        (ctypes.c_uint * 2)(box_columns, box_rows),
        (ctypes.c_uint * 2)(1, 1),
        *(0, _SWIZZLES[box_columns * value_bytes], _PROMOTE_TO_256, 0),
    )
    _check("cuTensorMapEncodeTiled", status)
    return made
