"""What is missing can be caught as with ultralytics, and as the engine's errors."""

import pickle
from pathlib import Path

import pytest

from engine.compat.ultralytics import YOLO
from engine.compat.ultralytics.errors import as_missing
from engine.errors import ImageError, InputError


@pytest.mark.parametrize(
    "source",
    ["missing.png", Path("missing.png"), "missing", "missing/*.png", "missing.mp4", "m" * 999],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_missing_source(model, source, stream):
    for kind in (FileNotFoundError, ImageError):
        with pytest.raises(kind, match=r"^m[^\n]*$"):
            list(model(source, stream=stream))


def test_a_folder_without_pictures(model, folder):
    (folder / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"^empty: folder: has no pictures"):
        model("empty")


def test_other_errors_are_those_of_pictures(model, folder):
    Path("broken.png").write_bytes(b"broken")
    for source in ("broken.png", b"broken", "http://127.0.0.1:9/a.png", 63):
        with pytest.raises(ImageError) as caught:
            model(source)
        assert not isinstance(caught.value, FileNotFoundError)


def test_a_missing_network(folder):
    Path("other.weights").write_bytes(b"weights")
    for name in ("more/nope.cfg", "other.weights"):
        for kind in (FileNotFoundError, InputError):
            with pytest.raises(kind, match=r"no such file|is missing"):
                YOLO(name)


def test_they_are_pickled():
    again = pickle.loads(pickle.dumps(as_missing(ImageError("x: is not there"), "x")))
    assert isinstance(again, FileNotFoundError)
    assert str(again) == "x: is not there"
