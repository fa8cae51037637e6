"""cuBLAS for one stream: matrix products in row-major order.

The only file that imports skcuda. scikit-cuda 0.5.3 (2019) is older than every library that it
meets today, so its import is patched here; functions that it lacks are bound through ctypes.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

from engine.backends.cuda.driver import library
from engine.errors import DeviceError

_STATUS = {
    1: "not initialised",
    3: "out of memory",
    7: "invalid value",
    8: "unsupported by this device",
    11: "memory cannot be reached",
    13: "a kernel failed",
    14: "internal error",
    15: "not supported",
    16: "licence error",
}
_FLOAT, _HALF = 0, 2  # CUDA_R_32F, CUDA_R_16F
_SUMS_ARE_FLOAT = 68  # CUBLAS_COMPUTE_32F
_DEFAULT_ALGORITHM = -1
_AS_IT_IS, _TRANSPOSED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
_PLAIN_MATH, _TF32_MATH = 0, 3

_i, _q, _p = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_SHAPE = (_i, _i, _i, _i, _i)  # transposes, then three sizes
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (_p,),
    "cublasDestroy_v2": (_p,),
    "cublasSetStream_v2": (_p, _p),
    "cublasSetWorkspace_v2": (_p, _p, ctypes.c_size_t),
    "cublasSetMathMode": (_p, _i),
    "cublasGetProperty": (_i, _p),
    "cublasSgemm_v2": (_p, *_SHAPE, _p, _p, _i, _p, _i, _p, _p, _i),
    "cublasSgemmStridedBatched": (_p, *_SHAPE, _p, _p, _i, _q, _p, _i, _q, _p, _p, _i, _q, _i),
    "cublasGemmEx": (_p, *_SHAPE, _p, *(_p, _i, _i), *(_p, _i, _i), _p, *(_p, _i, _i), _i, _i),
    "cublasGemmStridedBatchedEx": (
        *(_p, *_SHAPE, _p),
        *(_p, _i, _i, _q),
        *(_p, _i, _i, _q),
        *(_p, _p, _i, _i, _q, _i, _i, _i),
    ),
}


@dataclass(frozen=True)
class Product:
    """out (rows, columns) = a (rows, depth) * b', all row-major; b is stored as (columns, depth).

    A pitch is the number of values from one row to the next; b is dense. With a `count`, each
    next product has its `a` a step further on, and takes the next columns of `out` and part of b.
    """

    rows: int
    columns: int
    depth: int
    a_pitch: int
    out_pitch: int
    count: int = 1
    a_step: int = 0
    is_half: bool = False  # a and b are float16; sums are float32
    is_half_out: bool = False


class Blas:
    """Products on one stream, for one thread.

    The first of them opens cuBLAS: many networks need none, and loading it is slow.
    """

    def __init__(self, stream: int, workspace: Callable[[], tuple[int, int]]) -> None:
        """`workspace` allocates memory for cuBLAS and returns its pointer and bytes."""
        self._stream = stream
        self._workspace = workspace
        self._one = ctypes.c_float(1.0)
        self._zero = ctypes.c_float(0.0)
        self._handle: int | None = None
        self._is_tf32 = False

    def allow_tf32(self, is_allowed: bool) -> None:
        """Let float32 products round their operands to TF32."""
        self._is_tf32 = is_allowed
        if self._handle is not None:
            self._set_math()

    def multiply(self, product: Product, a: int, b: int, out: int) -> None:
        """Enqueue the product of the matrices at these device pointers.

        cuBLAS is column-major and reads a row-major matrix as its transpose. Since
        out' = b a', it gets b first and a second, and writes `out` in row-major order.
        """
        if self._handle is None:
            self._open()
        p, is_batched = product, product.count > 1
        if p.is_half:
            name = "cublasGemmStridedBatchedEx" if is_batched else "cublasGemmEx"
        else:
            name = "cublasSgemmStridedBatched" if is_batched else "cublasSgemm_v2"

        def matrix(pointer: int, pitch: int, step: int, kind: int = _HALF) -> tuple[int, ...]:
            """Return the arguments of one matrix; `step` leads to the next one."""
            return pointer, *([kind] if p.is_half else []), pitch, *([step] if is_batched else [])

        self._call(
            name,
            *(_TRANSPOSED, _AS_IT_IS, p.columns, p.rows, p.depth),
            ctypes.byref(self._one),
            *matrix(b, p.depth, p.columns * p.depth),
            *matrix(a, p.a_pitch, p.a_step),
            ctypes.byref(self._zero),
            *matrix(out, p.out_pitch, p.columns, _HALF if p.is_half_out else _FLOAT),
            *([p.count] if is_batched else []),
            *([_SUMS_ARE_FLOAT, _DEFAULT_ALGORITHM] if p.is_half else []),
        )

    def close(self) -> None:
        if self._handle is not None:
            self._call("cublasDestroy_v2")
            self._handle = None

    def _open(self) -> None:
        self._handle = _created()
        try:
            self._call("cublasSetStream_v2", self._stream)
            # A captured graph must not depend on memory that cuBLAS may reallocate.
            self._call("cublasSetWorkspace_v2", *self._workspace())
            self._set_math()
        except BaseException:
            self.close()
            raise

    def _set_math(self) -> None:
        self._call("cublasSetMathMode", _TF32_MATH if self._is_tf32 else _PLAIN_MATH)

    def _call(self, name: str, *arguments: Any) -> None:
        _check(name, getattr(cublas(), name)(self._handle, *arguments))


def _created() -> int | None:
    """Return a new handle, from scikit-cuda if installed."""
    skcuda = skcuda_cublas()
    if skcuda is not None:
        try:
            handle: int = skcuda.cublasCreate()
        except skcuda.cublasError as error:
            reason = (error.__doc__ or type(error).__name__).strip().lower()
            raise DeviceError(f"cuda: cublasCreate: {reason}") from None
        return handle
    place = ctypes.c_void_p()
    _check("cublasCreate_v2", cublas().cublasCreate_v2(ctypes.byref(place)))
    return place.value


def named_version() -> str:
    """Return the version of cuBLAS from its file name if possible, without loading it."""
    path = Path(library.require(library.CUBLAS))
    for name in (path.resolve().name, path.name):
        if named := re.search(r"\.so\.(\d+(\.\d+)*)$", name):
            return named.group(1)
    return version()


def version() -> str:
    """Return the version of cuBLAS, without creating a context."""
    parts = []
    for part in range(3):
        number = ctypes.c_int()
        _check("cublasGetProperty", cublas().cublasGetProperty(part, ctypes.byref(number)))
        parts.append(number.value)
    return ".".join(map(str, parts))


@lru_cache(maxsize=1)
def cublas() -> ctypes.CDLL:
    """Load the library and declare the arguments of every function used here."""
    path = library.require(library.CUBLAS)
    lt = Path(path).with_name(Path(path).name.replace("libcublas", "libcublasLt"))
    if lt.is_file():
        ctypes.CDLL(str(lt))  # cuBLAS then finds it by its bare name
    return library.declare(library.load(library.CUBLAS), _ARGUMENTS)


_import_lock = Lock()


@lru_cache(maxsize=1)
def skcuda_cublas() -> ModuleType | None:
    """Return `skcuda.cublas` with the library found here, or None without scikit-cuda."""
    with _import_lock:
        if "skcuda.cublas" not in sys.modules and importlib.util.find_spec("skcuda") is None:
            return None
        path = library.require(library.CUBLAS)
        cublas()
        with _patched_import(path):
            return importlib.import_module("skcuda.cublas")


@contextmanager
def _patched_import(path: str) -> Iterator[None]:
    """Make `import skcuda.cublas` work with current libraries, without using a GPU.

    pkg_resources: removed in setuptools 82; skcuda only asks it for its own version.
    skcuda.cuda: looks for libcudart and libcuda under old names; skcuda.cublas does not use it.
    LoadLibrary: skcuda knows cuBLAS by names up to CUDA 10.1; other threads may load others.
    skcuda.utils: reads the version from a SONAME of a form that ended with CUDA 10.1, through a
    shell; otherwise it would create a context on device 0.
    """
    with ExitStack() as undo, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escape sequences in skcuda
        _stand_in(undo, "pkg_resources", require=_require, declare_namespace=lambda name: None)
        _stand_in(undo, "skcuda.cuda")
        package = importlib.import_module("skcuda")
        utils = importlib.import_module("skcuda.utils")
        _replace(undo, package, "cuda", sys.modules["skcuda.cuda"])
        _replace(undo, utils, "find_lib_path", lambda name: path)
        _replace(undo, utils, "get_soname", lambda name: f"libcublas.so.{version()}")
        load = ctypes.cdll.LoadLibrary
        _replace(
            undo, ctypes.cdll, "LoadLibrary", lambda name: load(path if "cublas" in name else name)
        )
        yield


def _require(name: str) -> list[SimpleNamespace]:
    from importlib import metadata  # slow to import

    return [SimpleNamespace(version=metadata.version(name))]


def _stand_in(undo: ExitStack, name: str, **contents: Any) -> None:
    """Put a stand-in module into sys.modules until `undo` runs."""
    before = sys.modules.get(name)
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
    if before is None:
        undo.callback(sys.modules.pop, name, None)
    else:
        undo.callback(sys.modules.__setitem__, name, before)


def _replace(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Set an attribute until `undo` runs."""
    if name in vars(owner):
        undo.callback(setattr, owner, name, vars(owner)[name])
    else:
        undo.callback(delattr, owner, name)
    setattr(owner, name, value)


def _check(name: str, status: int) -> None:
    if status != 0:
        raise DeviceError(f"cuda: {name}: {_STATUS.get(status, f'status {status}')}")
