"""A small network in a folder of its own, and a YOLO that runs it."""

import shutil

import pytest

from engine.compat.ultralytics import YOLO
from tests.pictures import write_picture


@pytest.fixture
def folder(tmp_path, monkeypatch, tiny_detector, tiny_classifier):
    for model, stem in ((tiny_detector, "net"), (tiny_classifier, "kinds")):
        for kind in ("cfg", "weights", "names"):
            shutil.copy(getattr(model, kind), tmp_path / f"{stem}.{kind}")
    for name in ("a.png", "more/a.png", "more/b.png"):
        write_picture(tmp_path / name, (100, 50), seed=len(name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder):
    model = YOLO("net.cfg").to("cpu")
    yield model
    model.close()


@pytest.fixture
def classifier(folder):
    model = YOLO("kinds.weights").to("cpu")
    yield model
    model.close()
