"""The command that brings an extra, which is for the engine that runs and no other of its name."""

import shlex
from importlib import metadata
from pathlib import Path

import pytest

from engine import extras

ROOT = Path(__file__).parents[1]


def of_an_engine_that_is(installed, monkeypatch):
    def version(name):
        if name == "engine" and installed:
            return "0.1.0"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    return extras.command("ray")


def test_an_installed_engine_is_called_by_its_name(monkeypatch):
    assert of_an_engine_that_is(True, monkeypatch) == "pip install 'engine[ray]'"


def test_a_clone_is_called_by_its_folder(monkeypatch):
    words = shlex.split(of_an_engine_that_is(False, monkeypatch))
    assert words == ["pip", "install", f"{ROOT}[ray]"]


def test_a_folder_with_a_blank_is_one_word(monkeypatch):
    monkeypatch.setattr(extras, "__file__", "/home/my nets/engine/extras.py")
    words = shlex.split(of_an_engine_that_is(False, monkeypatch))
    assert words[2] == "/home/my nets[ray]"


@pytest.mark.parametrize("extra", ["cuda12", "cuda13", "onnx", "ray", "serve", "triton", "video"])
def test_it_is_one_of_those_that_there_are(extra):
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert f"\n{extra} =\n" in setup[setup.index("[options.extras_require]") :]
