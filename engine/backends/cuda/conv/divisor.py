"""A number that kernels divide by with a product and a shift."""

from __future__ import annotations

import ctypes


class Divisor(ctypes.Structure):
    """The struct of the same name in fast_divide.cuh; it divides numbers below 2^31."""

    _fields_ = (("factor", ctypes.c_uint), ("shift", ctypes.c_int))

    @classmethod
    def of(cls, divisor: int) -> Divisor:
        shift = 31 + (divisor - 1).bit_length()
        return cls(-(-(1 << shift) // divisor), shift)
