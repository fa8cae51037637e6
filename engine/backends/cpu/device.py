"""CpuDevice: compile plans for the CPU."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from engine.backends.base import PrecisionError
from engine.backends.cpu.program import CpuProgram
from engine.backends.cpu.workers import thread_count
from engine.errors import DeviceError, InputError, suggest, within_memory
from engine.plan.build import Plan

PRECISIONS: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int8": np.dtype(np.float32),  # of what is not int8: see Plan.scales
}


def _processor() -> str:
    """Return the model on Linux, the architecture elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


class CpuDevice:
    """The processor, or some of its cores. Closing it closes the programs that it compiled."""

    passes = (
        "drop_unread",
        "fold_batchnorm",
        "fuse_activation",
        "fuse_residual",
        "pool_before_concat",
        "fuse_pool",
        "chain_convolutions",
        "fuse_upsample",
        "elide_copies",
        "place_tensors",
    )

    def __init__(self, threads: int | None = None) -> None:
        self.name = "cpu" if threads is None else f"cpu:{threads}"
        self.threads = threads or thread_count()
        self._programs: WeakSet[CpuProgram] = WeakSet()
        self._is_closed = False

    def describe(self) -> str:
        count = self.threads
        return f"{_processor()}, {count} thread{'s' if count > 1 else ''}"

    def compile(self, plan: Plan, *, batch: int = 1, precision: str = "float32") -> CpuProgram:
        if self._is_closed:
            raise DeviceError(f"{self.name}: the device is closed")
        if precision not in PRECISIONS:
            is_for_gpus = precision in ("tf32", "float16")
            hint = " GPUs have it: device cuda" if is_for_gpus else suggest(precision, PRECISIONS)
            known = " or ".join(PRECISIONS)
            raise PrecisionError(
                f"{self.name}: precision: expected {known}, got {precision!r}.{hint}"
            )
        if batch < 1:
            raise InputError(f"{self.name}: batch: expected at least 1, got {batch}")
        with within_memory(self.name):
            program = CpuProgram(plan, PRECISIONS[precision], batch=batch, threads=self.threads)
        self._programs.add(program)
        return program

    def close(self) -> None:
        self._is_closed = True
        for program in tuple(self._programs):
            program.close()
