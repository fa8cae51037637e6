"""The translation unit, the launch signatures in it, and what a compiler says of it."""

import shutil
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_float, c_int, c_longlong, c_size_t, c_uint, c_void_p
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.backends.cuda.driver import compiler, nvrtc
from engine.backends.cuda.driver.compile_cache import Cache
from engine.backends.cuda.driver.compiler import Toolkit
from engine.backends.cuda.kernels import sources
from engine.errors import DeviceError
from engine.plan.activations import ACTIVATIONS

ADD = compiler.unit_of("add_two")
EVERY_KERNEL = compiler.declared(compiler.translation_unit())


@pytest.mark.parametrize(
    ("declaration", "kinds"),
    [
        (
            "const float* __restrict__ src, real* __restrict__ out, int n",
            [c_void_p, c_void_p, c_int],
        ),
        ("float x, unsigned n, long long step", [c_float, c_uint, c_longlong]),
        ("const float* __restrict__ src,\n    size_t size", [c_void_p, c_size_t]),
    ],
)
def test_signatures_are_read_from_the_text(declaration, kinds):
    text = f'extern "C" __global__ void copy({declaration})\n{{\n}}\n'
    assert list(compiler.signatures(text)["copy"].values()) == kinds


def test_launch_bounds_hide_no_kernel():
    text = 'extern "C" __global__ void __launch_bounds__(256, 2) copy(int n)\n{\n}\n'
    assert compiler.signatures(text) == {"copy": {"n": c_int}}


def test_parameters_that_kernels_have_in_common_are_read_once():
    text = (
        "#define ALL_PARAMETERS      \\\n    const real *src,  \\\n        int n\n\n"
        'extern "C" __global__ void copy(ALL_PARAMETERS)\n{\n}\n'
        'extern "C" __global__ void __launch_bounds__(64) move(ALL_PARAMETERS)\n{\n}\n'
    )
    found = {"src": c_void_p, "n": c_int}
    assert compiler.signatures(text) == {"copy": found, "move": found}


def test_an_argument_of_a_type_without_a_code_is_our_mistake():
    with pytest.raises(AssertionError, match="copy: no argument can have type 'double'"):
        compiler.signatures('extern "C" __global__ void copy(double x)')


def test_every_kernel_of_every_file_has_a_signature():
    text = compiler.translation_unit()
    pairs = text.count("\nSCALAR_AND_PACKED(")
    macro = 2  # kernels in its definition
    kernels = text.count('extern "C" __global__') - macro + 2 * pairs
    assert len(compiler.signatures(text)) == kernels


def test_the_unit_has_a_case_for_every_activation():
    text = compiler.translation_unit()
    for kind, row in enumerate(ACTIVATIONS.values()):
        assert f"case {kind}: return {row.cuda};" in text


def test_lines_of_the_unit_keep_the_numbers_of_their_files():
    text = compiler.translation_unit()
    part = text[
        text.index('#line 1 "engine/backends/cuda/kernels/vision/border.cu"') :
    ].splitlines()[1:]
    original = sources.kernels()["vision/border.cu"].splitlines()
    for number, line in enumerate(original):
        if not line.startswith("#include"):
            assert part[number] == line


def test_the_unit_names_no_folder_of_this_machine():
    assert str(Path(compiler.__file__).parents[2]) not in compiler.translation_unit()


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            "kernels/tiled.cu(3): warning: x\nkernels/tiled.cu(16): error: no y\n1 error detected",
            "cuda: kernels: kernels/tiled.cu(16): error: no y",
        ),
        (
            "nvcc fatal   : Cannot find compiler",
            "cuda: kernels: nvcc fatal   : Cannot find compiler",
        ),
        ("something else\n", "cuda: kernels: something else"),
        ("", "cuda: kernels: the compiler said nothing"),
    ],
)
def test_the_line_that_is_wrong_is_told(log, message):
    assert nvrtc.compile_message(log) == message


class FakeToolkit(Toolkit):
    """NVRTC that knows some architectures."""

    def architectures(self):
        return [75, 80, 90, 100]

    @property
    def name(self):
        return "nvrtc 13.0"

    @property
    def identity(self):
        return self.name


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ((7, 5), "sm_75"),
        ((8, 0), "sm_80"),
        ((9, 0), "sm_90a"),
        ((8, 9), "compute_80"),
        ((12, 1), "compute_100"),
    ],
)
def test_a_card_newer_than_the_toolkit_gets_ptx(monkeypatch, capability, target):
    asked = []
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 1))
    monkeypatch.setattr(nvrtc, "compile_source", lambda *arguments: asked.append(arguments))
    compiler.compile_image("text", ("-DX",), capability, FakeToolkit(None))
    assert asked == [("text", target, ("-DX",))]


def test_a_card_older_than_the_toolkit_is_told_so():
    with pytest.raises(DeviceError, match=r"cannot compile for compute capability 7\.0"):
        compiler.compile_image("text", (), (7, 0), FakeToolkit(None))


@pytest.mark.parametrize("capability", [(9, 0), (12, 0)])
def test_code_that_would_not_wait_is_not_made(monkeypatch, capability):
    monkeypatch.setattr(FakeToolkit, "architectures", lambda self: [75, 80, 87])
    with pytest.raises(DeviceError, match=r"cannot compile for more than 8\.7.*Install CUDA 12\.1"):
        compiler.compile_image("text", (), capability, FakeToolkit(None))


def test_nvrtc_that_is_too_old_for_hopper_is_named(monkeypatch):
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 0))
    with pytest.raises(DeviceError, match=r"too old for .* 9\.0\. Install CUDA 12\.1"):
        compiler.compile_image("text", (), (9, 0), FakeToolkit(None))


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """How often the compiler ran, with a cache of its own."""
    compiled = []

    def compile_image(source, options, capability, tools):
        compiled.append((options, capability, tools.identity))
        return b"cubin"

    monkeypatch.setattr(compiler, "compile_image", compile_image)
    monkeypatch.setattr(compiler, "_cache", lambda: Cache(tmp_path))
    monkeypatch.setattr(compiler, "toolkit", lambda *_: FakeToolkit(None))
    return compiled


def test_pycuda_compiles_im2col_and_nvrtc_the_rest(monkeypatch):
    suits = {(9, 0): Toolkit(None), None: Toolkit("/nvcc")}
    monkeypatch.setattr(compiler, "toolkit", lambda capability=None: suits[capability])
    made = {
        name: compiler.source(compiler.unit_of(name), (9, 0), "float32")._toolkit.nvcc
        for name in ("im2col_elements_packed", "im2col_windows", "add_two")
    }
    assert made == {"im2col_elements_packed": "/nvcc", "im2col_windows": "/nvcc", "add_two": None}


@pytest.mark.parametrize(("place", "loaded"), [("", ["libnvrtc-builtins.so.13.0"]), (None, [])])
def test_nvrtc_finds_its_second_library_next_to_it(monkeypatch, tmp_path, place, loaded):
    """A bare name is the linker's, which must not make the current folder a source of code."""
    monkeypatch.chdir(tmp_path)
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.0"):
        (tmp_path / name).touch()
    path = "libnvrtc.so.13" if place is None else str(tmp_path / "libnvrtc.so.13")
    monkeypatch.setattr(nvrtc.library, "require", lambda wanted: path)
    monkeypatch.setattr(
        nvrtc.library, "load", lambda wanted: SimpleNamespace(nvrtcGetErrorString=SimpleNamespace())
    )
    asked = []
    monkeypatch.setattr(nvrtc.ctypes, "CDLL", lambda name: asked.append(Path(name).name))
    nvrtc._nvrtc.__wrapped__()
    assert asked == loaded


def test_a_warm_start_runs_no_compiler(counted):
    source = compiler.source(ADD, (9, 0), "float32")
    assert not source.is_compiled
    assert source.image() == b"cubin"
    assert source.is_compiled
    assert source.image() == b"cubin"
    assert len(counted) == 1


def test_another_card_precision_text_or_toolkit_is_compiled_anew(counted, monkeypatch):
    first = compiler.source(ADD, (9, 0), "float32")
    first.image()
    compiler.source(ADD, (8, 0), "float32").image()
    compiler.source(ADD, (9, 0), "float16").image()
    compiler.source(compiler.unit_of("multiply"), (9, 0), "float32").image()
    replace(first, text="other text").image()
    monkeypatch.setattr(FakeToolkit, "identity", "nvrtc 13.1")
    first.image()
    assert len(counted) == 6


@pytest.mark.parametrize("kernel", EVERY_KERNEL)
def test_each_portable_kernel_is_compiled_with_none_but_its_pair(kernel):
    unit = compiler.unit_of(kernel)
    together = {each for each in EVERY_KERNEL if compiler.unit_of(each) == unit}
    assert kernel in together <= {unit.name, f"{unit.name}_packed"}
    assert set(compiler.declared(unit.text())) == together
    lines = sources.portable()[unit.file].count("\n")
    assert unit.text().split(f'/{unit.file}"\n')[1].count("\n") == lines


def test_nvcc_without_a_host_compiler_leaves_the_work_to_nvrtc(monkeypatch):
    monkeypatch.setattr(compiler.library, "find", lambda wanted: "/nvcc")
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/g++" if name == "g++" else None)
    monkeypatch.setenv("PATH", "/with")
    assert compiler.toolkit() == Toolkit("/nvcc")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("PATH", "/without")
    assert compiler.toolkit() == Toolkit(None)
    monkeypatch.setenv("PATH", "/with")  # is not looked through again
    assert compiler.toolkit() == Toolkit("/nvcc")
    compiler._toolkit.cache_clear()


def test_tiles_are_left_to_nvrtc_where_it_knows_the_card(monkeypatch):
    found = {compiler.library.NVCC: "/nvcc", compiler.library.NVRTC: "/libnvrtc.so"}
    monkeypatch.setattr(compiler.library, "find", found.get)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/g++")
    monkeypatch.setattr(nvrtc, "architectures", lambda: [80, 90])
    for number, (capability, cure) in enumerate(
        [((9, 0), None), ((12, 0), "/nvcc"), (None, "/nvcc")]
    ):
        monkeypatch.setenv("PATH", f"/tiles{number}")  # part of what a search depends on
        assert compiler.toolkit(capability) == Toolkit(cure)
    del found[compiler.library.NVRTC]
    monkeypatch.setenv("PATH", "/no-nvrtc")
    assert compiler.toolkit((9, 0)) == Toolkit("/nvcc")
    compiler._toolkit.cache_clear()
    compiler._nvrtc_suits.cache_clear()


def test_the_first_kernels_are_compiled_once_and_not_by_nvcc(monkeypatch, tmp_path):
    compiled = []
    monkeypatch.setattr(compiler, "_cache", lambda: Cache(tmp_path))
    monkeypatch.setattr(compiler, "toolkit", lambda capability=None: Toolkit(None))
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(
        compiler, "compile_image", lambda text, *_: compiled.append(text) or b"made"
    )
    for _ in range(2):
        compiler.compile_first((9, 0))
    assert len(compiled) == len(compiler._FIRST)
    assert "leave(" in compiled[0]
    monkeypatch.setattr(compiler, "toolkit", lambda capability=None: Toolkit("/nvcc"))
    compiler.compile_first((8, 0))
    assert len(compiled) == len(compiler._FIRST)


def test_an_nvcc_that_cannot_run_is_named(tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("no program")
    with pytest.raises(DeviceError, match=r"cuda: .*nvcc: cannot be run: "):
        Toolkit(str(nvcc)).architectures()


def test_the_identity_of_nvcc_changes_with_its_file(tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("one")
    before = Toolkit(str(nvcc)).identity
    assert Toolkit(str(nvcc)).identity == before
    nvcc.write_text("another")
    assert Toolkit(str(nvcc)).identity != before


def test_what_nvcc_says_while_it_succeeds_is_not_told_however_threads_overlap(monkeypatch):
    """Where each thread restored the filters that it found, the second would warn."""
    both_compile, first_is_done = threading.Barrier(2, timeout=10), threading.Event()

    def compile_source(source, **_):
        both_compile.wait()
        if source == "second":
            assert first_is_done.wait(10)
            warnings.warn("The CUDA compiler succeeded, but said the following", stacklevel=2)
        return source.encode()

    monkeypatch.setitem(sys.modules, "pycuda", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "pycuda.compiler", SimpleNamespace(compile=compile_source))
    monkeypatch.setitem(sys.modules, "pycuda.driver", SimpleNamespace(CompileError=OSError))
    with warnings.catch_warnings(record=True) as told, ThreadPoolExecutor(2) as pool:
        warnings.simplefilter("always")
        first, second = (
            pool.submit(compiler._compile_with_nvcc, name, "sm_90a", (), "nvcc")
            for name in ("first", "second")
        )
        assert first.result(10) == b"first"
        first_is_done.set()
        assert second.result(10) == b"second"
        assert not told
        warnings.warn("heard again", stacklevel=2)
    assert [str(each.message) for each in told] == ["heard again"]
