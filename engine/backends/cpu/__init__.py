"""The CPU backend in NumPy: the definition of every op, and fast convolutions."""

from __future__ import annotations

from engine.arguments import parse_integer
from engine.backends.cpu.device import CpuDevice
from engine.errors import InputError
from engine.files.naming import shown


def open(argument: str) -> CpuDevice:
    """Open the CPU with `argument` threads; by default one for each usable processor."""
    if not argument:
        return CpuDevice()
    threads = parse_integer(argument)
    if not threads:
        raise InputError(f"device: expected cpu or cpu:THREADS, got 'cpu:{shown(argument)}'")
    return CpuDevice(threads)
