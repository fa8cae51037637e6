"""The CPU through NumPy: the written definition of every op, and a fast one."""

from __future__ import annotations

from engine.backends.cpu.device import CpuDevice
from engine.errors import InputError


def open(argument: str) -> CpuDevice:
    """Open the CPU with `argument` threads; without it, as many as this process may use."""
    if not argument:
        return CpuDevice()
    if not (argument.isascii() and argument.isdigit() and int(argument) > 0):
        raise InputError(f"device: expected cpu or cpu:THREADS, got 'cpu:{argument}'")
    return CpuDevice(int(argument))
