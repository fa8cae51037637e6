"""Compile the kernels, unit by unit, for a precision and a card; the cache on disk keeps them.

kernels/README.md tells what is compiled when.
"""

from __future__ import annotations

import ctypes
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.backends.cuda.driver import compile_cache, library, nvrtc
from engine.backends.cuda.kernels import sources
from engine.concurrency.cached_property import cached_property
from engine.errors import DeviceError
from engine.plan.activations import ACTIVATIONS

OLDEST = (7, 5)  # Turing
_FOLDER = "engine/backends/cuda/kernels"  # how messages of the compiler name a kernel's file
_HEADERS = ("half.cuh", "common.cuh")  # joined before the other headers, which may use them
_FUNCTIONS = "functions.cuh"  # joined before the activations
# Kernels of most programs of every precision, since their results are float32.
_FIRST = ("leave", "yolo_candidates")
_BY_PYCUDA = "conv/im2col.cu"  # PyCUDA compiles it with nvcc, where there is one
_LOCAL_INCLUDE = re.compile(r'^#include ".*$|^#pragma once$', re.MULTILINE)
_OPTIONS = {"float32": (), "tf32": (), "float16": ("-DSTORE_HALF",), "int8": ("-DSTORE_INT8",)}

_ENTRY = re.compile(r'extern "C" __global__ void(?: __launch_bounds__\([^)]*\))?')
_KERNEL = re.compile(rf"{_ENTRY.pattern}\s+(\w+)\(([^)]*)\)")
_PAIR = re.compile(r"^SCALAR_AND_PACKED\((\w+), (\w+)\)", re.MULTILINE)  # see common.cuh
# Parameter lists that several kernels share.
_PARAMETERS = re.compile(r"^#define (\w+_PARAMETERS)\s((?:.*\\\n)*.*)$", re.MULTILINE)
C_TYPES: dict[str, Any] = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "float": ctypes.c_float,
    "long long": ctypes.c_longlong,
    "size_t": ctypes.c_size_t,
}
EARLY_STARTS = (9, 0)  # programmatic dependent launch since this compute capability
_QUALIFIER = re.compile(r"\b(const|__restrict__|__grid_constant__)\b")


@dataclass(frozen=True)
class Toolkit:
    """The compiler: nvcc through PyCUDA, or NVRTC if there is no nvcc."""

    nvcc: str | None

    @cached_property
    def name(self) -> str:
        return self.nvcc or "nvrtc {}.{}".format(*nvrtc.version())

    @cached_property
    def identity(self) -> str:
        """Return a text that changes with the compiler, found without running it."""
        if self.nvcc is None:
            return self.name
        path = Path(self.nvcc).resolve()
        facts = path.stat()
        return f"nvcc {path} {facts.st_size} {facts.st_mtime_ns}"

    def architectures(self) -> list[int]:
        """Return the architectures that it can compile for, as 75, 80 …"""
        if self.nvcc is None:
            return nvrtc.architectures()
        import subprocess  # slow to import, and a warm start compiles nothing

        try:
            listed = subprocess.run(
                [self.nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise DeviceError(f"cuda: {self.nvcc}: cannot be run: {error}") from None
        return [int(number) for number in re.findall(r"compute_(\d+)\b", listed.stdout)]


def toolkit(capability: tuple[int, int] | None = None) -> Toolkit:
    """Return nvcc if it and its host compiler are installed, otherwise NVRTC.

    With a capability, return NVRTC if it is installed and knows the card: it compiles in half the
    time, for which a first run waits.
    """
    if capability is not None and _nvrtc_suits(library.surroundings(), capability):
        return Toolkit(None)
    return _toolkit(library.surroundings())


@lru_cache(maxsize=8)
def _nvrtc_suits(_: library.Surroundings, capability: tuple[int, int]) -> bool:
    if library.find(library.NVRTC) is None:
        return False
    try:
        return capability[0] * 10 + capability[1] in nvrtc.architectures()
    except DeviceError:
        return False


@lru_cache(maxsize=8)
def _toolkit(_: library.Surroundings) -> Toolkit:
    import shutil

    found = library.find(library.NVCC)
    return Toolkit(found if found and (shutil.which("g++") or shutil.which("cl")) else None)


# ---------------------------------------------------------------- text


@lru_cache(maxsize=1)
def translation_unit() -> str:
    """Return all portable kernels after the activations; #line directives name the real files."""
    known = sources.portable()
    return _joined({path: known[path] for path in sorted(known) if path.endswith(".cu")})


def _joined(files: Mapping[str, str]) -> str:
    """Return some files of kernels after the activations and all headers."""
    known = sources.portable()
    headers = (path for path in known if path.endswith(".cuh") and path != _FUNCTIONS)
    order = [*_HEADERS, *sorted(set(headers) - {*_HEADERS})]
    texts = {**{path: known[path] for path in order}, **files}
    return "\n".join(
        [
            activate_function(),
            *(
                f'#line 1 "{_FOLDER}/{path}"\n{_LOCAL_INCLUDE.sub("", text)}'
                for path, text in texts.items()
            ),
        ]
    )


class Unit(ABC):
    """A portable kernel or a tile: what is compiled at once and loaded as one module."""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """About how long it takes to compile."""

    @property
    def for_nvrtc(self) -> bool:
        """Whether NVRTC compiles it: in half the time of nvcc, for which a first run waits."""
        return True

    @abstractmethod
    def text(self) -> str: ...

    @abstractmethod
    def options(self, precision: str) -> tuple[str, ...]:
        """Return the options of the compiler."""


@dataclass(frozen=True)
class Portable(Unit):
    """A kernel outside conv/mma and conv/sm90, or both of SCALAR_AND_PACKED."""

    file: str  # as in "ops/add.cu"
    name: str
    seconds = 0.1

    @property
    def for_nvrtc(self) -> bool:
        return self.file != _BY_PYCUDA

    def options(self, precision: str) -> tuple[str, ...]:
        return _OPTIONS[precision]

    def text(self) -> str:
        """Return the kernel with what it includes.

        The other kernels of its file become templates that nothing instantiates, so that a first
        run does not wait for them.
        """
        text = sources.portable()[self.file]
        text = _PAIR.sub(lambda pair: pair[0] if pair[1] == self.name else "", text)
        text = _KERNEL.sub(lambda kernel: self._declaration(*kernel.group(0, 1)), text)
        return _joined({self.file: text})

    def _declaration(self, text: str, name: str) -> str:
        return text if name == self.name else _ENTRY.sub("template <int> __device__ void", text)


@lru_cache(maxsize=1)
def _units() -> dict[str, Portable]:
    """Map every portable kernel to its unit."""
    found = {}
    for path, text in sources.portable().items():
        if path.endswith(".cu"):
            found.update({name: Portable(path, name) for name, _ in _KERNEL.findall(text)})
            for name, _ in _PAIR.findall(text):
                found[name] = found[f"{name}_packed"] = Portable(path, name)
    return found


def unit_of(kernel: str) -> Portable:
    return _units()[kernel]


def activate_function() -> str:
    """Return the activations in C: activate(kind, x), and the number of each as KIND_name."""
    functions = _LOCAL_INCLUDE.sub("", sources.by_name()[_FUNCTIONS])
    kinds = [f"#define KIND_{name} {kind}" for kind, name in enumerate(ACTIVATIONS)]
    cases = [
        f"    case {kind}: return {row.cuda};" for kind, row in enumerate(ACTIVATIONS.values())
    ]
    head = "DEVICE float activate(int kind, float x)"
    return "\n".join(
        [functions, *kinds, head, "{", "    switch (kind) {", *cases, "    }\n    return x;\n}"]
    )


def declared(text: str) -> dict[str, str]:
    """Map every kernel in `text` to the text of its parameters, with macros expanded."""
    macros = {name: given.replace("\\\n", " ") for name, given in _PARAMETERS.findall(text)}
    kernels = dict(_KERNEL.findall(text))
    kernels.pop("name", None)  # the definition of SCALAR_AND_PACKED
    for name, prefix in _PAIR.findall(text):
        kernels[name] = kernels[f"{name}_packed"] = f"{prefix}_PARAMETERS"
    return {
        name: re.sub(r"\w+_PARAMETERS", lambda match: macros[match.group()], given)
        for name, given in kernels.items()
    }


def signatures(text: str) -> dict[str, dict[str, Any]]:
    """Map every kernel in `text` to its parameters: the ctypes type of each by name, in order."""
    return {
        kernel: {
            name: _c_type(kernel, kind)
            for kind, name in re.findall(r"\s*([^,]*?)(\w+)\s*(?:,|$)", " ".join(given.split()))
        }
        for kernel, given in declared(text).items()
    }


def parameters(kernel: str) -> dict[str, Any]:
    """Return the parameters of a portable kernel."""
    return _signatures()[kernel]


@lru_cache(maxsize=1)
def _signatures() -> dict[str, dict[str, Any]]:
    return signatures(translation_unit())


def in_order(kernel: str, arguments: Mapping[str, float]) -> list[Any]:
    """Return arguments as ctypes values in the order of the kernel's parameters."""
    kinds = parameters(kernel)
    unknown = arguments.keys() ^ kinds.keys()
    assert not unknown, f"{kernel}: missing or unknown parameters: {sorted(unknown)}"
    return [kind(arguments[name]) for name, kind in kinds.items()]


def _c_type(kernel: str, kind: str) -> Any:
    kind = " ".join(_QUALIFIER.sub("", kind).split())
    assert "*" in kind or kind in C_TYPES, f"{kernel}: no argument can have type {kind!r}"
    return ctypes.c_void_p if "*" in kind else C_TYPES[kind]


# ---------------------------------------------------------------- compilation


@dataclass(frozen=True)
class Source:
    """The text of a unit and everything else that its compiled image depends on."""

    text: str
    options: tuple[str, ...]
    capability: tuple[int, int]
    for_nvrtc: bool = False  # if installed

    def image(self) -> bytes:
        """Return the compiled kernels, from the cache if possible."""
        stored = _cache().read(self._key)
        if stored is None:
            stored = self.compile_now()
            self.keep(stored)
        return stored

    def compile_now(self) -> bytes:
        return compile_image(self.text, self.options, self.capability, self._toolkit)

    def keep(self, image: bytes) -> None:
        """Put what was compiled elsewhere into the cache."""
        _cache().write(self._key, image)

    @property
    def is_compiled(self) -> bool:
        """Whether the cache has it."""
        return _cache().read(self._key) is not None

    @property
    def _key(self) -> str:
        facts = [self.text, *self.options, str(self.capability), self._toolkit.identity]
        return compile_cache.key_of(facts)

    @property
    def _toolkit(self) -> Toolkit:
        return toolkit(self.capability if self.for_nvrtc else None)


@lru_cache(maxsize=384)
def source(unit: Unit, capability: tuple[int, int], precision: str) -> Source:
    """Return the source of a unit; that of a tile is the same for every precision."""
    return Source(unit.text(), unit.options(precision), capability, unit.for_nvrtc)


def compile_first(capability: tuple[int, int]) -> None:
    """Compile what most programs need, unless the cache has it or nvcc would compile it."""
    if toolkit(capability).nvcc is None:
        for name in _FIRST:
            source(unit_of(name), capability, "float32").image()


def compile_image(
    source: str, options: tuple[str, ...], capability: tuple[int, int], tools: Toolkit
) -> bytes:
    """Compile to a cubin, or to PTX for the driver if the card is newer than the toolkit."""
    number = capability[0] * 10 + capability[1]
    known = [each for each in tools.architectures() if each <= number]
    if not known:
        raise DeviceError(
            f"cuda: kernels: {tools.name} cannot compile for compute capability "
            f"{capability[0]}.{capability[1]}. Install an older CUDA toolkit"
        )
    if divmod(max(known), 10) < EARLY_STARTS <= capability:
        raise DeviceError(
            f"cuda: kernels: {tools.name} cannot compile for more than {max(known) / 10}, and"
            f" kernels compiled for that would start early on this card without waiting."
            f" Install CUDA 12.1 or later"
        )
    is_exact = number in known
    if number == 90 and tools.nvcc is None and nvrtc.version() < nvrtc.FOR_HOPPER:
        raise DeviceError(
            f"cuda: kernels: {tools.name} is too old for compute capability 9.0."
            f" Install CUDA 12.1 or later"
        )
    # 90a, not 90: only that target has wgmma.
    suffix = "a" if is_exact and number == 90 else ""
    target = f"{'sm' if is_exact else 'compute'}_{max(known)}{suffix}"
    if tools.nvcc is None:
        return nvrtc.compile_source(source, target, options)
    return _compile_with_nvcc(source, target, options, tools.nvcc)


def _compile_with_nvcc(source: str, target: str, options: tuple[str, ...], nvcc: str) -> bytes:
    from pycuda.compiler import compile as compile_source
    from pycuda.driver import CompileError

    # PyCUDA turns nvcc's output into a warning of its caller.
    warnings.filterwarnings("ignore", module=re.escape(__name__))
    try:
        compiled: bytes = compile_source(
            source,
            nvcc=nvcc,
            options=["-std=c++17", *options],
            no_extern_c=True,
            arch=target,
            cache_dir=False,
            target="cubin" if target.startswith("sm_") else "ptx",
        )
    except CompileError as error:
        log = f"{error.stdout or ''}\n{error.stderr or ''}"
        raise DeviceError(nvrtc.compile_message(log)) from error
    return compiled


@lru_cache(maxsize=1)
def _cache() -> compile_cache.Cache:
    return compile_cache.Cache(compile_cache.folder() / "kernels")
