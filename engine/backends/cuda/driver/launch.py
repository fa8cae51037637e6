"""Kernel launches with clusters, tensor maps and early starts, which PyCUDA does not offer.

They use the driver's C interface in the current context. A tensor map describes to TMA, the copy
engine, how an array lies in memory; an early start is programmatic dependent launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.backends.cuda.driver import pycuda_loader
from engine.backends.cuda.driver.pycuda_loader import call
from engine.plan.ops import Conv2d

_CLUSTER, _EARLY_START, _CARVE_OUT = 4, 6, 14  # CU_LAUNCH_ATTRIBUTE_*
_CARVE_OUT_SINCE = 12, 6  # the CUDA version of a driver
_ALL_SHARED = 100  # percent
_GRANTED_SHARED = 32 << 10  # dynamic bytes without a request: 48 KiB less a kernel's static ones
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# CU_TENSOR_MAP_DATA_TYPE_*; TF32 rounds floats during the copy.
BYTE, HALF, FLOAT, TF32 = 0, 6, 7, 11
_SWIZZLES = {32: 1, 64: 2, 128: 3}  # by the bytes of a row
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


class Module:
    """A loaded cubin; its context must be current."""

    def __init__(self, image: bytes) -> None:
        self._handle = ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self._handle), image)
        self._limits: dict[str, int] = {}

    def function(self, name: str, *, shared: int = 0) -> Function:
        """Return a kernel that may use `shared` bytes of dynamic shared memory."""
        found = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(found), self._handle, name.encode())
        # The limit belongs to the kernel, not to a launch, so it only grows. Static shared memory
        # counts against the bytes that need no request.
        limit = max(shared, self._limits.get(name, _GRANTED_SHARED))
        if limit > self._limits.get(name, _GRANTED_SHARED):
            self._limits[name] = limit
            call("cuFuncSetAttribute", found, _DYNAMIC_SHARED, limit)
        assert found.value is not None
        return Function(found.value, shared)

    def close(self) -> None:
        if self._handle:
            call("cuModuleUnload", self._handle)
            self._handle = ctypes.c_void_p()


@dataclass(frozen=True)
class Function:
    """A kernel of a module and the dynamic shared memory of its launches."""

    handle: int
    shared: int

    def launch(
        self,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[Any],
        *,
        stream: int,
        cluster: int = 1,
        early: bool = False,
        all_shared: bool = False,
    ) -> None:
        """Enqueue the kernel with `arguments`, which are ctypes values.

        With `early` it may start while the previous kernel still runs, and waits for it itself.
        With `all_shared` the carve-out prefers shared memory to L1 as far as possible. An SM must
        be idle to change its carve-out, so kernels with an equal one wait less.
        """
        attributes = (_Attribute * 3)()
        count = 0
        if cluster > 1:
            attributes[0].kind, attributes[0].value.cluster[:] = _CLUSTER, (cluster, 1, 1)
            count = 1
        if early:
            attributes[count].kind, attributes[count].value.flag = _EARLY_START, 1
            count += 1
        if all_shared and _knows_carve_outs():
            attributes[count].kind, attributes[count].value.flag = _CARVE_OUT, _ALL_SHARED
            count += 1
        configuration = _Configuration(
            grid, (threads, 1, 1), self.shared, stream, attributes, count
        )
        places = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        kernel = ctypes.c_void_p(self.handle)
        call("cuLaunchKernelEx", ctypes.byref(configuration), kernel, places, None)


@lru_cache(maxsize=1)
def _knows_carve_outs() -> bool:
    return pycuda_loader.cuda_of(pycuda_loader.load()) >= _CARVE_OUT_SINCE


class TensorMap(ctypes.Structure):
    """128 opaque bytes, aligned to 64."""

    _fields_ = (("words", ctypes.c_uint64 * 16),)
    _align_ = 64


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution over an NHWC array, as TMA visits them."""

    op: Conv2d
    pointer: int
    kind: int  # BYTE, HALF, FLOAT, TF32
    value_bytes: int
    rows: int
    pitch: int


def windows_map(windows: Windows, *, pixels: int, channels: int) -> TensorMap:
    """Return an im2col tensor map for slices of `pixels` windows by `channels` channels."""
    op = windows.op
    top, left, bottom, right = op.padding
    reach_y, reach_x = ((k - 1) * d for k, d in zip(op.kernel, op.dilation, strict=True))
    lower = (ctypes.c_int * 2)(-left, -top)
    upper = (ctypes.c_int * 2)(right - reach_x, bottom - reach_y)
    slices = lower, upper, ctypes.c_uint(channels), ctypes.c_uint(pixels)
    return _encoded("cuTensorMapEncodeIm2col", windows, channels, slices, op.stride)


def boxes_map(windows: Windows, *, height: int, width: int, channels: int) -> TensorMap:
    """Return a tiled tensor map for boxes of pixels by `channels` channels."""
    box = (ctypes.c_uint * 4)(channels, width, height, 1)
    return _encoded("cuTensorMapEncodeTiled", windows, channels, (box,), (1, 1))


def _encoded(
    function: str, w: Windows, channels: int, region: Sequence[Any], stride: tuple[int, int]
) -> TensorMap:
    """Return a tensor map of an array; `region` is what one copy takes of it."""
    buffer = (ctypes.c_char * (_MAP_BYTES + 64))()
    made = TensorMap.from_buffer(buffer, -ctypes.addressof(buffer) % 64)  # ctypes aligns to 16
    depth, height, width = w.op.src.shape.sides
    row = w.pitch * w.value_bytes
    call(
        function,
        ctypes.byref(made),
        *(ctypes.c_int(w.kind), ctypes.c_uint(4), ctypes.c_void_p(w.pointer)),
        (ctypes.c_uint64 * 4)(depth, width, height, w.rows),
        (ctypes.c_uint64 * 3)(row, row * width, row * width * height),
        *region,
        (ctypes.c_uint * 4)(1, stride[1], stride[0], 1),
        *(0, _SWIZZLES[channels * w.value_bytes], _PROMOTE_TO_256, 0),
    )
    return made
