"""nvJPEG, through its C interface: batches of JPEGs for the JPEG engine of a card.

The engine does not wait for earlier work on its stream, so nothing else may still use the memory
that it writes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from engine import extras
from engine.arrays import Array
from engine.backends.base import NoJpegEngineError
from engine.backends.cuda.driver import library, pycuda_loader
from engine.errors import DeviceError
from engine.vision.plain_jpeg import PlainJpeg

_HARDWARE = 3  # NVJPEG_BACKEND_HARDWARE
_RGBI = 5  # NVJPEG_OUTPUT_RGBI: interleaved
_INTERPOLATE = 32  # NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION: of chroma, as libjpeg does
_MAJOR, _MINOR = 0, 1  # MAJOR_VERSION, MINOR_VERSION
_OLDEST = 12, 1  # the first version that interpolates
_CPU_THREADS = 1
_ABOUT_PICTURES = (3, 4, 10)  # bad, unsupported or incomplete JPEGs
_NO_ENGINE = 7  # NVJPEG_STATUS_ARCH_MISMATCH
_STATUS = {
    1: "not initialized",
    2: "invalid parameter",
    3: "bad JPEG",
    4: "JPEG not supported",
    5: "out of memory",
    6: "execution failed",
    _NO_ENGINE: "the card has no JPEG engine",
    8: "internal error",
    9: "not supported",
    10: "incomplete JPEG",
}

_p, _size = ctypes.c_void_p, ctypes.c_size_t
_ARGUMENTS = {
    "nvjpegGetProperty": (ctypes.c_int, _p),
    "nvjpegGetCudartProperty": (ctypes.c_int, _p),
    "nvjpegCreateEx": (ctypes.c_int, _p, _p, ctypes.c_uint, _p),
    "nvjpegDestroy": (_p,),
    "nvjpegJpegStateCreate": (_p, _p),
    "nvjpegJpegStateDestroy": (_p,),
    "nvjpegJpegStreamCreate": (_p, _p),
    "nvjpegJpegStreamDestroy": (_p,),
    "nvjpegJpegStreamParseHeader": (_p, _p, _size, _p),
    "nvjpegDecodeBatchedSupported": (_p, _p, _p),
    "nvjpegDecodeBatchedInitialize": (_p, _p, ctypes.c_int, ctypes.c_int, ctypes.c_int),
    "nvjpegDecodeBatched": (_p, _p, _p, _p, _p, _p),
}

# nvjpegImage_t: four channels, of which interleaved pixels need one
IMAGE = np.dtype([("channel", np.uint64, 4), ("pitch", np.uint64, 4)])


@lru_cache(maxsize=1)
def libnvjpeg() -> ctypes.CDLL:
    """Return the library, or raise what to install."""
    if library.find(library.NVJPEG) is None:
        cure = f"Run: {extras.command('gpu-decode')}"
        raise DeviceError(f"decode: gpu: {library.NVJPEG.pattern} not found. {cure}")
    loaded = library.load(library.NVJPEG)
    try:
        return library.declare(loaded, _ARGUMENTS)
    except AttributeError as error:
        raise DeviceError(f"decode: gpu: nvJPEG is too old: {error}") from None


def check_version() -> None:
    """Raise if nvJPEG is too old, or too new for the driver, which runs older major versions."""
    version = _property("nvjpegGetProperty", _MAJOR), _property("nvjpegGetProperty", _MINOR)
    if version < _OLDEST:
        wanted, got = ("{}.{}".format(*each) for each in (_OLDEST, version))
        cure = f"Run: {extras.command('gpu-decode')}"
        raise DeviceError(f"decode: gpu: nvJPEG: expected {wanted} or later, got {got}. {cure}")
    cuda = _property("nvjpegGetCudartProperty", _MAJOR)
    major, minor = pycuda_loader.cuda_of(pycuda_loader.load())
    if cuda > major:
        raise DeviceError(
            f"decode: gpu: nvJPEG is for CUDA {cuda}, the driver for CUDA {major}.{minor}. "
            "Update the driver, or use --decode cpu"
        )


def _property(name: str, kind: int) -> int:
    found = ctypes.c_int()
    _call(name, kind, ctypes.byref(found))
    return found.value


class BatchDecoder:
    """A decoder of batches, for one thread at a time in which the card's context is current."""

    def __init__(self) -> None:
        self._calls = libnvjpeg()
        self._handle, self._state, self._header = _p(), _p(), _p()
        try:
            made = ctypes.byref(self._handle)
            _call("nvjpegCreateEx", _HARDWARE, None, None, _INTERPOLATE, made)
            _call("nvjpegJpegStateCreate", self._handle, ctypes.byref(self._state))
            _call("nvjpegJpegStreamCreate", self._handle, ctypes.byref(self._header))
        except DeviceError as error:
            self.close()
            raise type(error)(f"decode: gpu: {error}. Use --decode cpu") from None

    def supports(self, jpeg: PlainJpeg) -> bool:
        """Tell whether the engine decodes a JPEG, by its header."""
        calls, verdict = self._calls, ctypes.c_int(-1)
        place, length = _address(jpeg), len(jpeg.content)
        return (
            not calls.nvjpegJpegStreamParseHeader(self._handle, place, length, self._header)
            and not calls.nvjpegDecodeBatchedSupported(
                self._handle, self._header, ctypes.byref(verdict)
            )
            and not verdict.value
        )

    def decode(self, jpegs: Sequence[PlainJpeg], images: Array, stream: int) -> bool:
        """Decode into `images`, an array of IMAGE; False if a JPEG is of a kind that it refuses.

        The pixels are there when the stream has done its work.
        """
        count = len(jpegs)
        pointers = (_p * count)(*map(_address, jpegs))
        lengths = (_size * count)(*[len(each.content) for each in jpegs])
        known = self._handle, self._state
        _call("nvjpegDecodeBatchedInitialize", *known, count, _CPU_THREADS, _RGBI)
        status = self._calls.nvjpegDecodeBatched(
            self._handle, self._state, pointers, lengths, images.ctypes.data, stream
        )
        if status in _ABOUT_PICTURES:
            return False
        _check("nvjpegDecodeBatched", status)
        return True

    def close(self) -> None:
        for name, made in (
            ("nvjpegJpegStreamDestroy", self._header),
            ("nvjpegJpegStateDestroy", self._state),
            ("nvjpegDestroy", self._handle),
        ):
            if made.value:
                getattr(self._calls, name)(made)
                made.value = None


def _address(jpeg: PlainJpeg) -> int:
    if jpeg.address is not None:
        return jpeg.address
    address: int = np.frombuffer(jpeg.content, np.uint8).__array_interface__["data"][0]
    return address


def _call(name: str, *arguments: object) -> None:
    _check(name, getattr(libnvjpeg(), name)(*arguments))


def _check(name: str, status: int) -> None:
    if status:
        kind = NoJpegEngineError if status == _NO_ENGINE else DeviceError
        raise kind(f"{name}: {_STATUS.get(status, f'status {status}')}")
