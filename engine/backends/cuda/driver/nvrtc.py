"""NVRTC through ctypes: compiles CUDA C in this process, without nvcc or a host compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from engine.backends.cuda.driver import library
from engine.errors import DeviceError

FOR_HOPPER = (12, 1)  # sm_90a, and operands of asm that are written before others are read
_COMPILATION_FAILED = 6
# Since then --minimal leaves out textures and CUDA's runtime, which the kernels do not use. Threads
# parse one at a time, and without them each kernel takes 9 ms less.
_HAS_MINIMAL = (12, 4)


@lru_cache(maxsize=1)
def version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def architectures() -> list[int]:
    """Return the architectures that it can compile for, as 75, 80 …"""
    count = ctypes.c_int()
    _check(_nvrtc().nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(_nvrtc().nvrtcGetSupportedArchs(numbers))
    return list(numbers)


def compile_source(source: str, target: str, options: Sequence[str]) -> bytes:
    """Compile for sm_XY into a cubin, for compute_XY into PTX."""
    program = ctypes.c_void_p()
    _check(
        _nvrtc().nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None
        )
    )
    try:
        every = [
            f"--gpu-architecture={target}",
            "--std=c++17",
            *options,
            *(["--minimal"] if version() >= _HAS_MINIMAL else []),
        ]
        encoded = (ctypes.c_char_p * len(every))(*(option.encode() for option in every))
        status = _nvrtc().nvrtcCompileProgram(program, len(every), encoded)
        if status == _COMPILATION_FAILED:
            raise DeviceError(compile_message(_bytes(program, "ProgramLog").decode()))
        _check(status)
        return _bytes(program, "CUBIN" if target.startswith("sm_") else "PTX")
    finally:
        _nvrtc().nvrtcDestroyProgram(ctypes.byref(program))


def compile_message(log: str) -> str:
    """Return an error message from the first error line of a compiler's log."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line or "fatal" in line]
    return f"cuda: kernels: {(wrong or lines or ['the compiler said nothing'])[0]}"


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(_nvrtc(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    contents = ctypes.create_string_buffer(size.value)
    _check(getattr(_nvrtc(), f"nvrtcGet{what}")(program, contents))
    return contents.raw


@lru_cache(maxsize=1)
def _nvrtc() -> ctypes.CDLL:
    path = Path(library.require(library.NVRTC))
    if path.is_absolute():  # the library in the wheel of CUDA 13.0 does not find these next to it
        for each in path.parent.glob("libnvrtc-builtins.so.*"):
            with suppress(OSError):
                ctypes.CDLL(str(each))
    loaded = library.load(library.NVRTC)
    loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
    return loaded


def _check(status: int) -> None:
    if status != 0:
        raise DeviceError(f"cuda: NVRTC: {_nvrtc().nvrtcGetErrorString(status).decode()}")
