"""The output of doctor on machines that lack something."""

import pytest

from engine import cli
from engine.backends.cpu import blas
from engine.backends.cuda import doctor
from engine.backends.cuda.doctor import Finding
from engine.errors import InputError

ALL_WELL = [Finding("driver", "/lib/libcuda.so.1", None, ("this process: no",))]
NO_PYCUDA = [
    *ALL_WELL,
    Finding("pycuda", None, "pycuda. Run: pip install 'darknet-engine[cuda13]'"),
]


@pytest.fixture
def machine(monkeypatch):
    def install(findings):
        monkeypatch.setattr(doctor, "examine", lambda: findings)

    return install


def test_complete_machine_has_status_zero(machine, capsys):
    machine(ALL_WELL)
    assert cli.main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert "driver      /lib/libcuda.so.1\n" in out
    assert "this process" not in out
    assert err == ""


def test_missing_part_is_reported_with_a_hint_and_a_status(machine, capsys):
    machine(NO_PYCUDA)
    assert cli.main(["doctor"]) == 4
    out, err = capsys.readouterr()
    assert "pycuda      missing\n" in out
    assert err == "missing: pycuda. Run: pip install 'darknet-engine[cuda13]'\n"


def test_verbose_lists_the_places_searched(machine, capsys):
    machine(ALL_WELL)
    cli.main(["doctor", "--verbose"])
    assert "this process: no" in capsys.readouterr().out


def test_this_machine_can_be_examined(capsys):
    assert cli.main(["doctor"]) in (0, 4)
    out = capsys.readouterr().out
    assert "cuBLAS" in out
    assert f", {blas.describe()}\n" in out


@pytest.mark.parametrize(
    ("nvcc", "host", "nvrtc", "is_cured"),
    [
        ("/nvcc", "/g++", None, True),
        ("/nvcc", None, None, False),
        ("/nvcc", None, "/nvrtc", True),
        (None, "/g++", "/nvrtc", True),
        (None, "/g++", None, False),
    ],
)
def test_one_compiler_is_enough(monkeypatch, nvcc, host, nvrtc, is_cured):
    found = {"nvcc": nvcc, "NVRTC": nvrtc}
    monkeypatch.setattr(
        doctor, "_file", lambda wanted: Finding(wanted.name, found[wanted.name], "get it")
    )
    monkeypatch.setattr(doctor.shutil, "which", lambda name: host if name == "g++" else None)
    cures = [finding.cure for finding in doctor._compilers() if finding.cure]
    assert (not cures) == is_cured


def test_a_missing_home_folder_is_one_of_the_findings(monkeypatch):
    def fail():
        raise InputError("no home folder for the cache")

    monkeypatch.setattr(doctor.compile_cache, "folder", fail)
    (finding,) = [each for each in doctor.examine() if each.subject == "cache"]
    assert finding.cure == "no home folder for the cache"


def test_devices_are_not_examined_without_the_libraries(monkeypatch):
    monkeypatch.setattr(doctor, "_file", lambda wanted: Finding(wanted.name, None, "get it"))
    monkeypatch.setattr(doctor, "_devices", lambda: pytest.fail("asked for devices"))
    assert doctor.examine()[-1].cure is None
