"""Run the kernels' text on the CPU: g++ compiles it after host.h, and ops launch it there."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends.cuda.driver import compiler
from engine.backends.cuda.driver.cublas import Product
from tests import needs

FOLDER = Path(__file__).parent
HEADERS = ("fibers.h", "host.h", "half_on_host.h")
# Fibers jump from one stack to another, which -D_FORTIFY_SOURCE takes for a mistake.
_OPTIONS = ("-std=c++17", "-fPIC", "-w", "-ffp-contract=off", "-U_FORTIFY_SOURCE")
# Linking to the library of C++ as well takes a tenth of a second.
_LIBRARIES = ("-nodefaultlibs", "-lm", "-lc", "-lgcc")
GXX = shutil.which("g++")


@lru_cache(maxsize=1)
def _options() -> tuple[str, ...]:
    """Return the options; unwritten variables have a bit pattern that is NaN in halves."""
    assert GXX is not None
    done = subprocess.run([GXX, "-dumpversion"], capture_output=True, text=True, check=True)
    is_able = int(done.stdout.partition(".")[0]) >= 12
    return (*_OPTIONS, "-ftrivial-auto-var-init=pattern") if is_able else _OPTIONS


needs_gxx = needs.program("g++")
DEFINES = {"float32": (), "tf32": (), "float16": ("-DSTORE_HALF",), "int8": ("-DSTORE_INT8",)}
MOST_BLOCKS = 4  # fewer than there are items, so that every grid-stride loop goes round
_TEMPLATE = re.compile(
    r"^(?:template <[^>]*> )?DEVICE \w+ (\w+)\([^{]*\{(.*?)^\}", re.DOTALL | re.MULTILINE
)
_DYNAMIC = re.compile(r"extern __shared__ (\w+) (\w+)\[\];")


def source() -> str:
    """Return the translation unit of the kernels as C++, with a host function for each."""
    unit = _DYNAMIC.sub(r"\1* \2 = (\1*)dynamic_shared.values;", compiler.translation_unit())
    waiting: list[str] = []
    for name, body in _TEMPLATE.findall(unit):
        if _waits(body, waiting):
            waiting.append(name)
    runners = []
    for name, arguments in compiler.declared(unit).items():
        names = ", ".join(compiler.parameters(name))
        _, found, body = unit.partition(f" {name}(")
        body = body[: body.find('\nextern "C"') if '\nextern "C"' in body else None]
        if not found:  # by SCALAR_AND_PACKED
            body = f"{name.removesuffix('_packed')}_body("
        is_waiting = str(_waits(body, waiting)).lower()
        runners.append(
            f'extern "C" void host_{name}(int blocks, int threads, int shared, {arguments}) {{\n'
            f"run_on_host(blocks, threads, shared, {is_waiting}, [=] {{ {name}({names}); }});\n}}"
        )
    return "\n".join(['#include "host.h"', unit, '#line 1 "runners"', *runners])


def _waits(body: str, waiting: Sequence[str]) -> bool:
    """Return whether a kernel, or a function that it calls, waits for other threads."""
    calls = (re.search(rf"\b{each}[<(]", body) for each in waiting)
    return "__syncthreads" in body or "__shfl" in body or any(calls)


@lru_cache(maxsize=4)
def build(*defines: str) -> ctypes.CDLL:
    """Compile and load the kernels of the translation unit."""
    return compile_library(source(), defines)


def compile_library(text: str, defines: Sequence[str], speed: str = "-O1") -> ctypes.CDLL:
    """Compile a text once; the library stays in the temporary folder."""
    assert GXX is not None
    texts = [text, *(FOLDER.joinpath(name).read_text() for name in HEADERS)]
    facts = [*texts, *_options(), speed, *_LIBRARIES, *defines]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"engine-kernels-on-host-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    headers = _compiled_headers(folder, speed)
    library = folder / f"{key}.so"
    with _made_once(library) as is_missing:
        if is_missing:
            unit = folder / f"{key}.{os.getpid()}.cpp"
            made = unit.with_suffix(".so")
            unit.write_text(text)
            options = speed, f"-I{headers}", f"-I{FOLDER}", *defines
            _compile("-shared", *options, "-o", made, unit, *_LIBRARIES)
            made.replace(library)
            unit.unlink()
    return ctypes.CDLL(str(library))


@contextmanager
def _made_once(file: Path) -> Iterator[bool]:
    """Yield whether a file has to be made; other processes that want it wait meanwhile."""
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not file.exists()


def _compiled_headers(folder: Path, speed: str) -> Path:
    """Return a folder with host.h precompiled, because parsing it dominates compilation."""
    texts = [FOLDER.joinpath(name).read_text() for name in ("fibers.h", "host.h")]
    facts = [*texts, *_options(), speed, str(GXX), str(Path(GXX or "").stat().st_mtime_ns)]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
    headers = folder / f"headers-{key}"
    headers.mkdir(exist_ok=True)
    made = headers / "host.h.gch"
    with _made_once(made) as is_missing:
        if is_missing:
            part = headers / f"{os.getpid()}.gch"
            _compile(speed, "-x", "c++-header", "-o", part, FOLDER / "host.h")
            part.replace(made)
    return headers


def _compile(*arguments: str | Path) -> None:
    assert GXX is not None
    done = subprocess.run(
        [GXX, *_options(), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]


class HostKernels:
    """A stand-in for the kernels of a compiled image; without a library they do nothing."""

    def __init__(self, library: ctypes.CDLL | None) -> None:
        self._library = library
        self.launched: set[str] = set()

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[Any],
        *,
        stream: int,
        shared: int = 0,
        all_shared: bool = False,
    ) -> None:
        kinds = compiler.parameters(name).values()
        assert len(arguments) == len(kinds), name
        self.launched.add(name)
        if self._library is not None:
            function = getattr(self._library, f"host_{name}")
            function.argtypes = [*[ctypes.c_int] * 3, *kinds]
            function(min(grid[0], MOST_BLOCKS), threads, shared, *arguments)

    def close(self) -> None: ...


class HostBlas:
    """Matrix products on host pointers, by NumPy in float64."""

    def multiply(self, product: Product, a: int, b: int, out: int) -> None:
        p = product
        kind = np.float16 if p.is_half else np.float32
        kind_out = np.float16 if p.is_half and p.is_half_out else np.float32
        for index in range(p.count):
            left = _matrix(kind, a, index * p.a_step, p.rows, p.depth, p.a_pitch)
            right = _matrix(kind, b, index * p.columns * p.depth, p.columns, p.depth, p.depth)
            result = _matrix(kind_out, out, index * p.columns, p.rows, p.columns, p.out_pitch)
            with np.errstate(all="ignore"):  # a device says nothing either
                result[...] = left.astype(np.float64) @ right.astype(np.float64).T


def _matrix(
    kind: type[np.generic], pointer: int, offset: int, rows: int, columns: int, pitch: int
) -> np.ndarray:
    """Return the row-major matrix at a pointer."""
    size = np.dtype(kind).itemsize
    values = (rows - 1) * pitch + columns
    memory = (ctypes.c_char * (values * size)).from_address(pointer + size * offset)
    flat = np.frombuffer(memory, kind)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (size * pitch, size))
