"""The pip command in hints: it names this engine and an existing extra."""

import configparser
import shlex
from pathlib import Path

import pytest

from engine import extras

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def setup():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_distribution_is_the_one_that_is_built(setup):
    assert setup["metadata"]["name"] == extras.DISTRIBUTION


def test_installed_engine_is_named_by_its_distribution(monkeypatch, tmp_path):
    monkeypatch.setattr(
        extras, "__file__", str(tmp_path / "site-packages" / "engine" / "extras.py")
    )
    assert extras.command("ray") == "pip install 'darknet-engine[ray]'"


def test_clone_is_named_by_its_folder():
    assert shlex.split(extras.command("ray")) == ["pip", "install", f"{ROOT}[ray]"]


def test_clone_with_a_stale_egg_info_is_still_named_by_its_folder(monkeypatch, tmp_path):
    clone = tmp_path / "my nets"  # the blank must be quoted, too
    stale = clone / "darknet_engine.egg-info"
    stale.mkdir(parents=True)
    (stale / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: darknet-engine\nVersion: 0.0.1\n")
    (clone / "setup.cfg").touch()
    monkeypatch.setattr(extras, "__file__", str(clone / "engine" / "extras.py"))
    monkeypatch.syspath_prepend(clone)
    assert shlex.split(extras.command("ray")) == ["pip", "install", f"{clone}[ray]"]


@pytest.mark.parametrize(
    "extra",
    [
        "cuda12",
        "cuda13",
        "formats",
        "gpu-decode",
        "onnx",
        "ray",
        "read",
        "serve",
        "triton",
        "video",
    ],
)
def test_every_printed_extra_exists(extra, setup):
    assert extra in setup["options.extras_require"]
