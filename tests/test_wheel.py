"""The contents of the wheel: code, typing marker, kernels, networks, notes on weights."""

import configparser
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine import bundled, extras
from engine.version import __version__
from tests import needs

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    needs.package("setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout. Clone the repository to test the wheel")
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, tree / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, tree]
    built = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=300
    )
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_every_package_is_listed():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    listed = set(setup["options"]["packages"].split()) - {"engine.cfg", "engine.weights"}
    folders = (path.parent.relative_to(ROOT) for path in ROOT.glob("engine/**/__init__.py"))
    assert {".".join(each.parts) for each in folders} == listed


@pytest.mark.slow
def test_every_module_and_kernel_of_the_tree_is_in_the_wheel(wheel):
    kinds = {".py", ".css", ".cu", ".cuh", ".html", ".ini", ".js", ".typed"}
    files = {path for path in (ROOT / "engine").rglob("*") if path.suffix in kinds}
    missing = {path.relative_to(ROOT).as_posix() for path in files} - wheel
    assert not missing, "setup.cfg lists packages by name: is a new folder missing there?"


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["cfg", "weights"])
def test_cfg_and_weights_are_in_the_wheel(wheel, folder):
    names = {path.name for path in (ROOT / folder).iterdir() if path.is_file()}
    assert names
    assert {f"engine/{folder}/{name}" for name in names} <= wheel


@pytest.mark.slow
def test_nothing_is_installed_outside_the_package(wheel):
    assert {name.split("/")[0] for name in wheel if ".dist-info" not in name} == {"engine"}


@pytest.mark.slow
def test_wheel_has_the_distribution_name_that_hints_print(wheel):
    stem = f"{extras.DISTRIBUTION.replace('-', '_')}-{__version__}.dist-info"
    assert {name.split("/")[0] for name in wheel if ".dist-info" in name} == {stem}


def test_bundled_files_are_found_in_a_checkout():
    assert (bundled.folder("cfg") / "yolov3-tiny.cfg").is_file()
    assert (bundled.folder("weights") / "README.md").is_file()


@pytest.mark.parametrize("installed", [True, False])
def test_bundled_files_are_found_inside_the_package_or_next_to_it(tmp_path, monkeypatch, installed):
    package = tmp_path / "engine"
    parent = package if installed else tmp_path
    (parent / "cfg").mkdir(parents=True)
    monkeypatch.setattr(bundled, "_PACKAGE", package)
    assert bundled.folder("cfg") == parent / "cfg"


def test_the_default_model_needs_weights_cfg_and_names(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "_PACKAGE", tmp_path)
    for name in ("weights/own.weights", "cfg/own.cfg", "cfg/own.names"):
        assert bundled.default_model() is None
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    model = bundled.default_model()
    assert model is not None
    assert [path.name for path in model] == ["own.cfg", "own.weights", "own.names"]
