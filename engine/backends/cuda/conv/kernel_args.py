"""Structs that kernels take by value, filled by the names of their fields.

A test compares the fields of every class with those of its C struct.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

Fields = tuple[tuple[str, Any], ...]


def pointers(*names: str) -> Fields:
    return tuple((name, ctypes.c_void_p) for name in names)


def ints(*names: str) -> Fields:
    return tuple((name, ctypes.c_int) for name in names)


def divisors(*names: str) -> Fields:
    return tuple((name, Divisor) for name in names)


class KernelArgs(ctypes.Structure):
    """The fields of a C struct in its order; every field must be given."""

    struct: ClassVar[tuple[str, str]]  # the file in kernels/ and the name

    def __init__(self, **values: Any) -> None:
        names = {name for name, *_ in self._fields_}
        if names != values.keys():
            difference = ", ".join(sorted(names ^ values.keys()))
            raise TypeError(f"{type(self).__name__}: missing or unknown fields: {difference}")
        super().__init__(**values)


class Divisor(KernelArgs):
    """A divisor as a factor and a shift: it divides numbers below 2^31 without a division."""

    struct = ("fast_divide.cuh", "Divisor")
    _fields_ = (("factor", ctypes.c_uint), ("shift", ctypes.c_int))

    @classmethod
    def of(cls, divisor: int) -> Divisor:
        shift = 31 + (divisor - 1).bit_length()
        return cls(factor=-(-(1 << shift) // divisor), shift=shift)
