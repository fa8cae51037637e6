"""Check everything that the GPU backend needs, and continue past whatever is missing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from importlib import metadata

from engine import extras
from engine.backends.cuda.driver import compile_cache, cublas, library, pycuda_loader
from engine.errors import EngineError


@dataclass(frozen=True)
class Finding:
    """A prerequisite: what was found, or how to get it; with neither it is optional."""

    subject: str
    found: str | None
    cure: str | None = None
    details: tuple[str, ...] = ()


def examine() -> list[Finding]:
    """Return all findings, in the order in which the backend needs them."""
    findings = [
        _file(library.DRIVER),
        _package("pycuda", is_needed=True),
        _package("scikit-cuda", is_needed=False),
        _cublas(),
        *_compilers(),
        _cache(),
    ]
    if any(finding.cure for finding in findings):
        return [*findings, Finding("devices", "unknown until that is fixed")]
    return [*findings, _devices()]


def _file(wanted: library.Wanted) -> Finding:
    try:
        found = library.search(wanted)
    except EngineError as error:  # an environment variable names a missing file
        return Finding(wanted.name, None, str(error))
    *_, path = found.values()
    cure = None if path else f"{wanted.name}. {wanted.cure}"
    steps = tuple(f"{place}: {path or 'no'}" for place, path in found.items())
    return Finding(wanted.name, path, cure, steps)


def _package(name: str, *, is_needed: bool) -> Finding:
    try:
        return Finding(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        if is_needed:
            return Finding(name, None, f"{name}. Run: {extras.command('cuda13')}")
        return Finding(name, "none; cuBLAS is called directly")


def _cublas() -> Finding:
    finding = _file(library.CUBLAS)
    if finding.found is None:
        return finding
    try:
        version = cublas.version()
    except EngineError as error:
        return replace(finding, found=None, cure=str(error))
    return replace(finding, found=f"{version}, {finding.found}")


def _compilers() -> list[Finding]:
    """Check nvcc and NVRTC, one of which suffices; nvcc needs a C++ compiler."""
    nvcc, nvrtc = _file(library.NVCC), _file(library.NVRTC)
    host = shutil.which("g++") or shutil.which("cl")
    if nvcc.found and not host:
        nvcc = replace(nvcc, found=f"{nvcc.found}, without the C++ compiler that it needs")
    is_enough = bool((nvcc.found and host) or nvrtc.found)
    return [replace(nvcc, cure=None), replace(nvrtc, cure=None if is_enough else nvrtc.cure)]


def _cache() -> Finding:
    try:
        return Finding("cache", str(compile_cache.folder()))
    except EngineError as error:  # without a home folder
        return Finding("cache", None, str(error))


def _devices() -> Finding:
    try:
        module = pycuda_loader.load()
        count = pycuda_loader.count()
    except EngineError as error:
        return Finding("devices", None, str(error))
    major, minor = pycuda_loader.cuda_of(module)
    cards = "; ".join(
        f"cuda:{index}: {card.name()}, compute capability "
        f"{'.'.join(map(str, card.compute_capability()))}, "
        f"{pycuda_loader.gib(card.total_memory())}"
        for index, card in enumerate(map(module.Device, range(count)))
    )
    return Finding("devices", f"{count}, the driver is for CUDA {major}.{minor}; {cards}")
