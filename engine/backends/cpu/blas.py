"""The OpenBLAS library that NumPy uses: its number of threads and the processor it is built for."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.concurrency import fork_safety

KERNELS_VARIABLE = "OPENBLAS_CORETYPE"
# These kernels multiply small matrices without copying them to packed buffers first.
_WITHOUT_PACKING = ("SkylakeX", "Cooperlake", "SapphireRapids")
_UNPACKED_PRODUCTS = 100**3


class OpenBlas:
    """A loaded library, restricted to one thread between hold() and release()."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        """Bind its functions; `name` is a format string with prefix and suffix of their names."""
        self._get = _function(library, name.format("get_num_threads"), ctypes.c_int)
        self._put = _function(library, name.format("set_num_threads"), None, ctypes.c_int)
        try:
            self.kernels = _function(
                library, name.format("get_corename"), ctypes.c_char_p
            )().decode()
        except AttributeError:  # a build without this function
            self.kernels = "unknown processors"
        self._lock = fork_safety.lock(inner=True)
        self._holders = 0
        self._before = 1

    def hold(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._before = self._get()
                if self._before != 1:
                    self._put(1)
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._before != 1:
                self._put(self._before)

    def describe(self) -> str:
        """Return the kernels in use, and the variable that selected them if one did."""
        asked = os.environ.get(KERNELS_VARIABLE)
        chosen = f", as {KERNELS_VARIABLE}={asked} asks for" if asked else ""
        return f"OpenBLAS with kernels for {self.kernels}{chosen}"


_found: list[OpenBlas | None] = []  # filled at the first use, so that importing loads no library


def loaded() -> OpenBlas | None:
    """Return the library, or None with MKL and Accelerate, whose threads are left alone."""
    if not _found:
        _found.append(next(_all_loaded(), None))
    return _found[0]


def describe() -> str:
    """Return which matrix kernels NumPy uses, for reports."""
    library = loaded()
    return library.describe() if library else "no OpenBLAS, so the CPU backend has one thread"


def unpacked_products() -> int:
    """Return the most multiplications of a matrix product that needs no packing; 0 if unknown."""
    library = loaded()
    return _UNPACKED_PRODUCTS if library and library.kernels in _WITHOUT_PACKING else 0


def _all_loaded() -> Iterator[OpenBlas]:
    for path in _paths():
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "")):
            try:
                yield OpenBlas(library, f"{prefix}openblas_{{}}{suffix}")
            except AttributeError:  # its functions have other names
                continue


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


def _paths() -> Iterator[Path]:
    """Yield candidates: those in NumPy's wheel, then (Linux) those mapped into this process."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs", package / ".libs"):
        yield from sorted(folder.glob("*openblas*"))
    maps = Path("/proc/self/maps")
    if maps.exists():
        lines = (line.split(maxsplit=5) for line in maps.read_text().splitlines())
        paths = {Path(fields[5]) for fields in lines if len(fields) == 6}
        yield from sorted(path for path in paths if "openblas" in path.name)
