"""The CPU through NumPy: the written definition of every op, and a fast one."""

from __future__ import annotations

from engine.arguments import parse_integer
from engine.backends.cpu.device import CpuDevice
from engine.errors import InputError
from engine.files.naming import shown


def open(argument: str) -> CpuDevice:
    """Open the CPU with `argument` threads; without it, as many as this process may use."""
    if not argument:
        return CpuDevice()
    threads = parse_integer(argument)
    if not threads:
        raise InputError(f"device: expected cpu or cpu:THREADS, got 'cpu:{shown(argument)}'")
    return CpuDevice(threads)
