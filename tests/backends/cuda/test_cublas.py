"""Row-major products through a column-major library, and the import of an old scikit-cuda."""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from engine.backends.cuda.driver import cublas
from engine.backends.cuda.driver.cublas import Blas, Product
from engine.errors import DeviceError


def _columns(pointer, rows, columns, pitch, kind=np.float32):
    """The column-major matrix at a host pointer."""
    size = np.dtype(kind).itemsize
    memory = (ctypes.c_char * (((columns - 1) * pitch + rows) * size)).from_address(pointer)
    strides = (size, pitch * size)
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, kind), (rows, columns), strides)


def _gemm(transposes, sizes, alpha, a, b, beta, out, kinds=(np.float32, np.float32)):
    """cuBLAS's own definition: out = alpha * op(a) * op(b) + beta * out, column-major."""
    (m, n, k), (transpose_a, transpose_b) = sizes, transposes
    left = _columns(a[0], *((k, m) if transpose_a else (m, k)), a[1], kinds[0])
    right = _columns(b[0], *((n, k) if transpose_b else (k, n)), b[1], kinds[0])
    left, right = (left.T if transpose_a else left), (right.T if transpose_b else right)
    result = _columns(out[0], m, n, out[1], kinds[1])
    sums = alpha * (left.astype(np.float32) @ right.astype(np.float32))
    result[...] = sums if beta == 0 else sums + beta * result


class FakeCublas:
    """cuBLAS on host memory, by the argument lists of its documentation."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(handle, *arguments):
            self.calls.append((name, arguments))
            return 0

        return call

    def cublasCreate_v2(self, place):  # noqa: N802
        place._obj.value = 7
        return 0

    def cublasSgemm_v2(self, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # noqa: N802
        scales = alpha._obj.value, beta._obj.value
        _gemm((ta, tb), (m, n, k), scales[0], (a, lda), (b, ldb), scales[1], (c, ldc))
        return 0

    def cublasSgemmStridedBatched(  # noqa: N802
        self, handle, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, count
    ):
        for i in range(count):
            places = (a + 4 * i * sa, lda), (b + 4 * i * sb, ldb), (c + 4 * i * sc, ldc)
            scales = alpha._obj.value, beta._obj.value
            _gemm((ta, tb), (m, n, k), scales[0], *places[:2], scales[1], places[2])
        return 0

    def cublasGemmEx(  # noqa: N802
        self,
        handle,
        ta,
        tb,
        m,
        n,
        k,
        alpha,
        a,
        ka,
        lda,
        b,
        kb,
        ldb,
        beta,
        c,
        kc,
        ldc,
        compute,
        algo,
    ):
        assert (ka, kb, compute, algo) == (2, 2, 68, -1)
        kinds = np.float16, {0: np.float32, 2: np.float16}[kc]
        scales = alpha._obj.value, beta._obj.value
        places = (a, lda), (b, ldb), (c, ldc)
        _gemm((ta, tb), (m, n, k), scales[0], *places[:2], scales[1], places[2], kinds)
        return 0


class FakeSkcuda:
    """The part of skcuda.cublas that is used, over the same library."""

    def __init__(self, library):
        self._library = library

    def cublasCreate(self):  # noqa: N802
        return 7

    def cublasSgemm(self, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # noqa: N802
        _gemm((ta, tb), (m, n, k), alpha, (a, lda), (b, ldb), beta, (c, ldc))


@pytest.fixture
def library(monkeypatch):
    library = FakeCublas()
    monkeypatch.setattr(cublas, "cublas", lambda: library)
    return library


@pytest.fixture(params=["skcuda", "ctypes"])
def handle(request, library, monkeypatch):
    over = FakeSkcuda(library) if request.param == "skcuda" else None
    monkeypatch.setattr(cublas, "skcuda_cublas", lambda: over)
    return Blas(3, lambda: (64, 1 << 20))


ROWS, COLUMNS, DEPTH = 3, 5, 4


def _operands(kind=np.float32):
    rng = np.random.default_rng(5)
    a = rng.standard_normal((ROWS, DEPTH)).astype(kind)
    return a, rng.standard_normal((COLUMNS, DEPTH)).astype(kind)


def test_products_are_row_major(handle):
    a, b = _operands()
    out = np.ones((ROWS, COLUMNS), np.float32)
    product = Product(ROWS, COLUMNS, DEPTH, a_pitch=DEPTH, out_pitch=COLUMNS)
    handle.multiply(product, a.ctypes.data, b.ctypes.data, out.ctypes.data)
    np.testing.assert_allclose(out, a @ b.T, rtol=1e-6)


def test_a_pitch_leaves_what_lies_between_rows_alone(handle):
    a, b = _operands()
    wide = np.full((ROWS, COLUMNS + 3), 7, np.float32)
    wide_a = np.zeros((ROWS, DEPTH + 2), np.float32)
    wide_a[:, :DEPTH] = a
    product = Product(ROWS, COLUMNS, DEPTH, a_pitch=DEPTH + 2, out_pitch=COLUMNS + 3)
    handle.multiply(product, wide_a.ctypes.data, b.ctypes.data, wide.ctypes.data)
    np.testing.assert_allclose(wide[:, :COLUMNS], a @ b.T, rtol=1e-6)
    np.testing.assert_array_equal(wide[:, COLUMNS:], 7)


def test_the_products_of_groups_are_one_call(handle):
    rng = np.random.default_rng(6)
    a = rng.standard_normal((6, ROWS, DEPTH)).astype(np.float32)
    b = rng.standard_normal((6, COLUMNS, DEPTH)).astype(np.float32)
    out = np.zeros((ROWS, 6, COLUMNS), np.float32)
    product = Product(
        *(ROWS, COLUMNS, DEPTH), a_pitch=DEPTH, out_pitch=6 * COLUMNS, count=6, a_step=ROWS * DEPTH
    )
    handle.multiply(product, a.ctypes.data, b.ctypes.data, out.ctypes.data)
    np.testing.assert_allclose(out, (a @ b.transpose(0, 2, 1)).transpose(1, 0, 2), rtol=1e-5)


@pytest.mark.parametrize("is_half_out", [False, True])
def test_half_factors_sum_in_float(handle, is_half_out):
    a, b = _operands(kind=np.float16)
    out = np.zeros((ROWS, COLUMNS), np.float16 if is_half_out else np.float32)
    product = Product(
        *(ROWS, COLUMNS, DEPTH, DEPTH, COLUMNS), is_half=True, is_half_out=is_half_out
    )
    handle.multiply(product, a.ctypes.data, b.ctypes.data, out.ctypes.data)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_allclose(out, expected, rtol=2e-3 if is_half_out else 1e-6)


def multiply(handle):
    a, b = _operands()
    out = np.empty((ROWS, COLUMNS), np.float32)
    product = Product(ROWS, COLUMNS, DEPTH, a_pitch=DEPTH, out_pitch=COLUMNS)
    handle.multiply(product, a.ctypes.data, b.ctypes.data, out.ctypes.data)


def test_the_first_product_opens_cublas_with_the_math_that_was_asked_for(handle, library):
    handle.allow_tf32(True)
    handle.close()
    assert not library.calls
    multiply(handle)
    handle.allow_tf32(False)
    multiply(handle)
    handle.close()
    handle.close()
    assert library.calls == [
        ("cublasSetStream_v2", (3,)),
        ("cublasSetWorkspace_v2", (64, 1 << 20)),
        ("cublasSetMathMode", (3,)),
        ("cublasSetMathMode", (0,)),
        ("cublasDestroy_v2", ()),
    ]


def test_a_status_is_told_in_words(handle, library, monkeypatch):
    multiply(handle)
    monkeypatch.setattr(library, "cublasSetMathMode", lambda *_: 13, raising=False)
    with pytest.raises(DeviceError, match="cuda: cublasSetMathMode: a kernel failed"):
        handle.allow_tf32(True)


def test_a_handle_without_its_workspace_is_not_used(handle, library, monkeypatch):
    monkeypatch.setattr(library, "cublasSetWorkspace_v2", lambda *_: 3, raising=False)
    for _ in range(2):
        with pytest.raises(DeviceError, match="cuda: cublasSetWorkspace_v2: out of memory"):
            multiply(handle)
    assert [name for name, _ in library.calls] == ["cublasSetStream_v2", "cublasDestroy_v2"] * 2


# ---------------------------------------------------------------- the import of scikit-cuda

OLD_SKCUDA = {
    "__init__.py": "import pkg_resources\nfrom .version import __version__\n",
    "version.py": "import pkg_resources\n"
    "__version__ = pkg_resources.require('scikit-cuda')[0].version\n",
    "cuda.py": "raise OSError('CUDA runtime library not found')\n",
    "utils.py": "def find_lib_path(name):\n    raise OSError('no ldconfig')\n"
    "def get_soname(path):\n    raise OSError('no objdump')\n",
    "cublas.py": "import ctypes\nfrom . import cuda\nfrom . import utils\n"
    "library = ctypes.cdll.LoadLibrary('libcublas.so.10.1')\n"
    "soname = utils.get_soname(utils.find_lib_path('cublas'))\n",
}


@pytest.fixture
def old_skcuda(tmp_path, monkeypatch):
    """A scikit-cuda that needs all that 0.5.3 needs, over a library that is always there."""
    folder = tmp_path / "skcuda"
    folder.mkdir()
    for name, text in OLD_SKCUDA.items():
        (folder / name).write_text(text)
    (tmp_path / "scikit_cuda-0.5.3.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: scikit-cuda\nVersion: 0.5.3\n"
    (tmp_path / "scikit_cuda-0.5.3.dist-info" / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "skcuda"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(cublas, "cublas", lambda: FakeCublas())
    monkeypatch.setattr(cublas, "version", lambda: "13.0.2")
    monkeypatch.setattr(cublas.library, "require", lambda wanted: "libc.so.6")
    cublas.skcuda_cublas.cache_clear()
    yield
    cublas.skcuda_cublas.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "skcuda"]:
        del sys.modules[name]


def test_an_old_scikit_cuda_is_imported_over_the_library_that_was_found(old_skcuda):
    module = cublas.skcuda_cublas()
    assert module is not None
    assert module.library._name == "libc.so.6"
    assert module.soname == "libcublas.so.13.0.2"
    assert sys.modules["skcuda"].__version__ == "0.5.3"


def test_the_import_leaves_no_trace(old_skcuda):
    packages = sys.modules.get("pkg_resources")
    module = cublas.skcuda_cublas()
    assert module is not None
    assert sys.modules.get("pkg_resources") is packages
    assert "skcuda.cuda" not in sys.modules
    assert "LoadLibrary" not in vars(ctypes.cdll)
    with pytest.raises(OSError, match="no ldconfig"):
        sys.modules["skcuda.utils"].find_lib_path("cublas")
    with pytest.raises(OSError, match="CUDA runtime library not found"):
        __import__("skcuda.cuda")


def test_other_threads_may_load_other_libraries_meanwhile(old_skcuda):
    with cublas._patched_import("libc.so.6"):
        assert ctypes.cdll.LoadLibrary("libcublas.so.10.1")._name == "libc.so.6"
        assert ctypes.cdll.LoadLibrary("libm.so.6")._name == "libm.so.6"


def test_a_failure_of_scikit_cuda_is_told_in_words(monkeypatch):
    class cublasError(Exception):  # noqa: N801  as in skcuda
        pass

    class cublasAllocFailed(cublasError):  # noqa: N801, N818
        """Resource allocation failed."""

    def create():
        raise cublasAllocFailed

    module = SimpleNamespace(cublasCreate=create, cublasError=cublasError)
    monkeypatch.setattr(cublas, "cublas", FakeCublas)
    monkeypatch.setattr(cublas, "skcuda_cublas", lambda: module)
    with pytest.raises(DeviceError, match="cuda: cublasCreate: resource allocation failed"):
        multiply(Blas(3, lambda: (64, 1 << 20)))


def test_without_scikit_cuda_there_is_none(monkeypatch):
    monkeypatch.setattr(cublas.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "skcuda.cublas", raising=False)
    cublas.skcuda_cublas.cache_clear()
    assert cublas.skcuda_cublas() is None
    cublas.skcuda_cublas.cache_clear()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcublas.so.13", "13"),
        ("libcublas.so.12.8.4.1", "12.8.4.1"),
        ("libcublas.so", "loaded"),
    ],
)
def test_a_file_name_tells_the_version(monkeypatch, name, expected):
    monkeypatch.setattr(cublas.library, "require", lambda wanted: name)
    monkeypatch.setattr(cublas, "version", lambda: "loaded")
    assert cublas.named_version() == expected


def test_a_link_tells_the_version_of_what_it_leads_to(monkeypatch, tmp_path):
    tmp_path.joinpath("libcublas.so.13.1.0").touch()
    link = tmp_path / "libcublas.so"
    link.symlink_to("libcublas.so.13.1.0")
    monkeypatch.setattr(cublas.library, "require", lambda wanted: str(link))
    assert cublas.named_version() == "13.1.0"
