"""What the doctor prints on machines that lack this or that."""

import pytest

from engine import cli
from engine.backends.cpu import blas
from engine.backends.cuda import doctor
from engine.backends.cuda.doctor import Finding

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


def test_a_machine_that_has_all_it_needs_is_well(machine, capsys):
    machine(ALL_WELL)
    assert cli.main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert "driver      /lib/libcuda.so.1\n" in out
    assert "this process" not in out
    assert err == ""


def test_what_is_missing_is_told_with_its_cure_and_a_status(machine, capsys):
    machine(NO_PYCUDA)
    assert cli.main(["doctor"]) == 4
    out, err = capsys.readouterr()
    assert "pycuda      missing\n" in out
    assert err == "missing: pycuda. Run: pip install 'darknet-engine[cuda13]'\n"


def test_places_that_were_looked_at_are_for_those_who_ask(machine, capsys):
    machine(ALL_WELL)
    cli.main(["doctor", "--verbose"])
    assert "this process: no" in capsys.readouterr().out


def test_this_very_machine_can_be_examined_whatever_it_has(capsys):
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


def test_devices_are_not_blamed_for_what_is_missing_before_them(monkeypatch):
    monkeypatch.setattr(doctor, "_file", lambda wanted: Finding(wanted.name, None, "get it"))
    monkeypatch.setattr(doctor, "_devices", lambda: pytest.fail("asked for devices"))
    assert doctor.examine()[-1].cure is None
