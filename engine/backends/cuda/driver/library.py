"""Find NVIDIA's driver, cuBLAS, NVRTC and nvcc.

Search order: an ENGINE_* variable, libraries that the process has loaded, wheels, CUDA_HOME, conda,
the linker. Linux names only. Nothing here creates a context.
"""

from __future__ import annotations

import ctypes
import fnmatch
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from engine.errors import DeviceError

AnyLibrary = TypeVar("AnyLibrary", bound=ctypes.CDLL)
Surroundings: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True)
class Wanted:
    """A file that the backend needs."""

    name: str
    variable: str  # environment variable with the path of the file
    pattern: str  # glob pattern of the file's name
    cure: str
    linker_names: tuple[str, ...] = ()
    is_program: bool = False


def _package(name: str, file: str, package: str) -> Wanted:
    """Return a library of a CUDA toolkit, which is also a wheel."""
    names = tuple(f"{file}.so{version}" for version in (".13", ".12", ""))
    cure = f"Run: pip install {package}"
    return Wanted(name, f"ENGINE_{file.upper()}", f"{file}.so.*", cure, names)


DRIVER = Wanted(
    name="driver",
    variable="ENGINE_LIBCUDA",
    pattern="libcuda.so.1",
    linker_names=("libcuda.so.1",),
    cure="Install NVIDIA's driver, or use --device cpu",
)
CUBLAS = _package("cuBLAS", "libcublas", "nvidia-cublas")
NVRTC = _package("NVRTC", "libnvrtc", "nvidia-cuda-nvrtc")
NVJPEG = _package("nvJPEG", "libnvjpeg", "nvidia-nvjpeg")
NVCC = Wanted(
    name="nvcc",
    variable="ENGINE_NVCC",
    pattern="nvcc",
    cure="Run: pip install nvidia-cuda-nvcc",
    is_program=True,
)


# A successful search is cached until one of these variables changes.
_VARIABLES = (
    *(each.variable for each in (DRIVER, CUBLAS, NVRTC, NVJPEG, NVCC)),
    *("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "PATH"),
)
_known: dict[tuple[Wanted, Surroundings], str] = {}


def search(wanted: Wanted) -> dict[str, str | None]:
    """Search the places in order until one has the file; return what was found in each.

    Only the last of them can have it. The path may be a bare name that the linker finds.
    """
    found: dict[str, str | None] = {}
    for place, look in _PLACES:
        path = found[place.format(variable=wanted.variable)] = look(wanted)
        if path is not None:
            break
    return found


def surroundings() -> Surroundings:
    """Return the settings on which the result of a search depends."""
    return *map(os.environ.get, _VARIABLES), *sys.path


def find(wanted: Wanted) -> str | None:
    """Return the path of the file from a cached search, or None."""
    key = wanted, surroundings()
    if key not in _known:
        *_, path = search(wanted).values()
        if path is None:
            return None
        _known[key] = path
    return _known[key]


def require(wanted: Wanted) -> str:
    """Return the path of the file, or raise a DeviceError that says how to install it."""
    path = find(wanted)
    if path is None:
        raise DeviceError(f"cuda: {wanted.name}: {wanted.pattern} not found. {wanted.cure}")
    return path


def load(wanted: Wanted) -> ctypes.CDLL:
    """Load the library with local symbols (RTLD_LOCAL)."""
    path = require(wanted)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise DeviceError(f"cuda: {wanted.name}: cannot load {path}: {error}") from None


def declare(loaded: AnyLibrary, functions: Mapping[str, Sequence[Any]]) -> AnyLibrary:
    """Return the library after declaring the arguments of functions, all of which return int."""
    for name, arguments in functions.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return loaded


# ---------------------------------------------------------------- the places, in order


def _from_variable(wanted: Wanted) -> str | None:
    path = os.environ.get(wanted.variable)
    if path and not Path(path).is_file():
        raise DeviceError(f"{wanted.variable}: expected a file, got {path!r}")
    return path or None


def _from_process(wanted: Wanted) -> str | None:
    """Prefer a library that PyTorch or CuPy has loaded, to avoid mapping a second one."""
    maps = Path("/proc/self/maps")
    if wanted.is_program or not maps.is_file():
        return None
    listed = maps.read_text(errors="surrogateescape").splitlines()
    mapped = {line[line.find("/") :] for line in listed}
    fits = re.compile(fnmatch.translate(wanted.pattern)).match
    return _newest(Path(path) for path in mapped if fits(path.rpartition("/")[2]))


def _from_folders(roots: Callable[[], Iterable[Path]], wanted: Wanted) -> str | None:
    folders = ("bin",) if wanted.is_program else ("lib64", "lib", "targets/*/lib")
    return _newest(
        path
        for root in roots()
        for folder in folders
        for path in root.glob(f"{folder}/{wanted.pattern}")
    )


def _from_linker(wanted: Wanted) -> str | None:
    if wanted.is_program:
        from shutil import which  # slow to import, and rarely reached

        return which(wanted.name)
    for name in wanted.linker_names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def _wheel_folders() -> Iterator[Path]:
    """Yield the folders of wheels: nvidia/cu13 for CUDA 13, one for each library of CUDA 12."""
    for entry in sys.path:
        root = Path(entry or ".") / "nvidia"
        if root.is_dir():
            yield from sorted((path for path in root.iterdir() if path.is_dir()), reverse=True)


def _toolkits() -> list[Path]:
    roots = os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"
    return [Path(root) for root in roots if root]


def _conda() -> list[Path]:
    prefix = os.environ.get("CONDA_PREFIX")
    return [Path(prefix)] if prefix else []


_PLACES: tuple[tuple[str, Callable[[Wanted], str | None]], ...] = (
    ("{variable}", _from_variable),
    ("this process", _from_process),
    ("wheels", partial(_from_folders, _wheel_folders)),
    ("CUDA_HOME, CUDA_PATH, /usr/local/cuda", partial(_from_folders, _toolkits)),
    ("conda", partial(_from_folders, _conda)),
    ("the linker's path", _from_linker),
)


def _newest(paths: Iterable[Path]) -> str | None:
    best = max((path for path in paths if path.is_file()), key=_version, default=None)
    return None if best is None else str(best)


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\.(\d+)", path.name))
