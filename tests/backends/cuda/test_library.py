"""Where NVIDIA's files are looked for, in which order, and what is said when they are nowhere."""

import sys
from pathlib import Path

import pytest

from engine.backends.cuda.driver import library
from engine.errors import DeviceError


def found(wanted):
    """Return the path that a search ends with."""
    *_, path = library.search(wanted).values()
    return path


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine that has nothing of NVIDIA's; returns a function that puts a file somewhere."""
    for variable in ("ENGINE_LIBCUBLAS", "ENGINE_NVCC", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(library, "_toolkits", lambda real=library._toolkits: list(real())[:-1])
    places = tuple((place, look) for place, look in library._PLACES if "linker" not in place)
    monkeypatch.setattr(library, "_PLACES", places)

    def put(path, variable=None, value=None):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if variable is not None:
            monkeypatch.setenv(variable, str(tmp_path / value))
        return str(file)

    return put


def test_nothing_found_lists_every_place_that_was_looked_at(machine):
    result = library.search(library.CUBLAS)
    assert not any(result.values())
    assert list(result) == [
        "ENGINE_LIBCUBLAS",
        "this process",
        "wheels",
        "CUDA_HOME, CUDA_PATH, /usr/local/cuda",
        "conda",
    ]


def test_a_mapped_file_of_any_name_hinders_nothing(machine, monkeypatch, tmp_path):
    maps = tmp_path / "maps"
    maps.write_bytes(b"7f00-7f01 r--p 0 00:00 1 /tmp/caf\xe9.so\n")
    monkeypatch.setattr(
        library, "Path", lambda name: maps if name == "/proc/self/maps" else Path(name)
    )
    assert found(library.CUBLAS) is None


def test_what_is_required_and_missing_is_told_with_its_cure(machine):
    with pytest.raises(DeviceError, match=r"cuda: cuBLAS: .*not found\. Run: pip install"):
        library.require(library.CUBLAS)


@pytest.mark.parametrize(
    "path",
    [
        "site/nvidia/cu13/lib/libcublas.so.13",
        "site/nvidia/cublas/lib/libcublas.so.12",
    ],
)
def test_wheels_of_both_layouts_are_found(machine, path):
    assert found(library.CUBLAS) is None
    file = machine(path)
    assert found(library.CUBLAS) == file


@pytest.mark.parametrize("folder", ["lib64", "lib", "targets/aarch64-linux/lib"])
@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_a_toolkit_is_found_by_its_variable(machine, variable, folder):
    file = machine(f"cuda/{folder}/libcublas.so.12", variable, "cuda")
    assert found(library.CUBLAS) == file


def test_conda_is_searched_too(machine):
    file = machine("env/lib/libcublas.so.12", "CONDA_PREFIX", "env")
    assert found(library.CUBLAS) == file


def test_the_variable_goes_before_wheels_and_wheels_before_a_toolkit(machine):
    toolkit = machine("cuda/lib64/libcublas.so.12", "CUDA_HOME", "cuda")
    assert found(library.CUBLAS) == toolkit
    wheel = machine("site/nvidia/cu13/lib/libcublas.so.13")
    assert found(library.CUBLAS) == wheel
    own = machine("own.so", "ENGINE_LIBCUBLAS", "own.so")
    assert found(library.CUBLAS) == own


def test_a_variable_that_names_no_file_is_an_error_not_a_hint(machine, monkeypatch):
    monkeypatch.setenv("ENGINE_LIBCUBLAS", "/nowhere/libcublas.so")
    with pytest.raises(DeviceError, match="ENGINE_LIBCUBLAS: expected a file, got '/nowhere"):
        library.search(library.CUBLAS)


def test_the_newest_version_wins_by_number_not_by_letter(machine):
    machine("site/nvidia/cu13/lib/libcublas.so.9")
    newest = machine("site/nvidia/cu13/lib/libcublas.so.13")
    machine("site/nvidia/cu13/lib/libcublas.so.12.9.1")
    assert found(library.CUBLAS) == newest


def test_cublas_is_not_taken_for_its_light_sister(machine):
    machine("site/nvidia/cu13/lib/libcublasLt.so.13")
    assert found(library.CUBLAS) is None


def test_programs_lie_in_bin(machine):
    file = machine("site/nvidia/cu13/bin/nvcc")
    assert found(library.NVCC) == file


def test_a_file_that_is_no_library_is_told_by_its_path(machine):
    file = machine("own.so", "ENGINE_LIBCUBLAS", "own.so")
    with pytest.raises(DeviceError, match=f"cuda: cuBLAS: cannot load {file}"):
        library.load(library.CUBLAS)


def test_what_was_found_is_not_looked_for_again_while_its_surroundings_stay(machine, monkeypatch):
    searches = []
    search = library.search
    monkeypatch.setattr(library, "search", lambda wanted: searches.append(wanted) or search(wanted))
    for _ in range(2):
        with pytest.raises(DeviceError, match="not found"):
            library.require(library.CUBLAS)
    assert len(searches) == 2  # it may have been installed in the meantime
    file = machine("site/nvidia/cu13/lib/libcublas.so.13")
    for _ in range(2):
        assert library.require(library.CUBLAS) == file
    assert len(searches) == 3
    own = machine("own.so", "ENGINE_LIBCUBLAS", "own.so")
    assert library.require(library.CUBLAS) == own
    assert len(searches) == 4
