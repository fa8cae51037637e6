"""Device arrays of other libraries, exchanged through `__cuda_array_interface__`."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import finalize

import numpy as np

from engine.arrays import Array
from engine.backends.base import Device, Program
from engine.backends.cuda import conv
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import pycuda_loader
from engine.backends.cuda.runtime.program import CudaProgram
from engine.errors import InputError, suggest
from engine.plan.build import Plan
from engine.plan.ops import Conv2d

_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

# How each library allocates an array like a given one.
_MAKERS: dict[str, Callable[[Any, tuple[int, ...]], Any]] = {
    "torch": lambda like, shape: like.new_empty(shape),
    "cupy": lambda like, shape: sys.modules["cupy"].empty(shape, like.dtype),
}


@dataclass(frozen=True)
class CardArray:
    """A contiguous float32 array on a card."""

    owner: Any  # keeps the memory alive
    pointer: int
    shape: tuple[int, ...]
    device: str

    @staticmethod
    def of(name: str, owner: Any) -> CardArray:
        facts = owner.__cuda_array_interface__
        if np.dtype(facts["typestr"]) != np.float32:
            raise InputError(f"{name}: expected float32, got {np.dtype(facts['typestr'])}")
        shape, strides = tuple(facts["shape"]), facts.get("strides")
        dense = tuple(4 * prod(shape[axis + 1 :]) for axis in range(len(shape)))
        if strides is not None and tuple(strides) != dense:
            raise InputError(f"{name}: expected a contiguous array, got strides {tuple(strides)}")
        pointer = facts["data"][0]
        device = f"cuda:{card_of(pointer)}"
        return CardArray(owner, pointer, shape, device)

    def read(self, device: Device) -> Array:
        """Copy the values to the host."""
        values = np.empty(self.shape, np.float32)
        _cuda(device).read(self.pointer, values)
        return values

    def through(self, device: Device, program: Program, out_shape: tuple[int, ...]) -> Any:
        """Run `program` on these rows; return an array of the same library on this card."""
        assert isinstance(program, CudaProgram)
        library = type(self.owner).__module__.partition(".")[0]
        maker = _MAKERS.get(library)
        if maker is None:
            out: Any = OwnArray(_cuda(device), out_shape)
        else:
            out = maker(self.owner, out_shape)
        pointer = out.__cuda_array_interface__["data"][0]
        program.forward_on_card(self.pointer, pointer, rows=self.shape[0])
        return out


class OwnArray:
    """Device memory that any library can read; it is freed with this object."""

    def __init__(self, device: CudaDevice, shape: tuple[int, ...]) -> None:
        pointer, free = device.allocate(4 * prod(shape))
        self.shape = shape
        self.__cuda_array_interface__ = {
            "data": (pointer, False),
            "shape": shape,
            "typestr": "<f4",
            "strides": None,
            "version": 3,
        }
        finalize(self, free)


def compile_one(device: Device, plan: Plan, rows: int, algorithm: str | None) -> Program:
    """Compile a plan of one convolution with this algorithm, or by the rule of thumb."""
    cuda = _cuda(device)
    (op,) = plan.ops
    assert isinstance(op, Conv2d)
    if algorithm is not None:
        if algorithm not in conv.ALGORITHMS:
            hint = suggest(algorithm, conv.ALGORITHMS)
            raise InputError(f"algorithm: unknown {algorithm!r}.{hint}")
        able = cuda.algorithms(plan, op, batch=rows)
        if algorithm not in able:
            known = ", ".join(able)
            raise InputError(f"algorithm: {algorithm!r} cannot run this convolution. Try {known}")
    return cuda.compile(plan, batch=rows, algorithm=algorithm, tune=False)


def card_of(pointer: int) -> int:
    """Return the number of the card that owns this memory."""
    number = ctypes.c_int()
    status = pycuda_loader.libcuda().cuPointerGetAttribute(
        ctypes.byref(number), _DEVICE_ORDINAL, ctypes.c_ulonglong(pointer)
    )
    if status != 0:
        raise InputError(f"x: expected memory of a card, got pointer {pointer:#x}")
    return number.value


def _cuda(device: Device) -> CudaDevice:
    if not isinstance(device, CudaDevice):
        raise InputError(f"device: expected the CPU or a card, got {device.name}")
    return device
