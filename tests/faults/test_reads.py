"""Files with short reads, files that break off, and files that open but cannot be read."""

import io
import os

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli
from engine.darknet import weights
from engine.vision import image

NOISE = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
UNREADABLE = "/proc/self/mem"  # a regular file whose first byte cannot be read

needs_proc = pytest.mark.skipif(not os.path.exists(UNREADABLE), reason="needs Linux's /proc")  # noqa: PTH110


def encoded():
    buffer = io.BytesIO()
    Image.fromarray(NOISE).save(buffer, "PNG")
    return buffer.getvalue()


class Dripping(io.RawIOBase):
    """An unbuffered file whose reads return a few bytes at a time."""

    def __init__(self, content, *, breaks_at=None):
        self._content = io.BytesIO(content)
        self._breaks_at = breaks_at

    def readable(self):
        return True

    def read(self, count=-1):
        if self._breaks_at is not None and self._content.tell() >= self._breaks_at:
            raise OSError(5, "Input/output error")
        return self._content.read(min(7, count) if count > 0 else 7)


def test_file_with_short_reads_is_read_to_its_end():
    assert np.array_equal(image.read(Dripping(encoded())).pixels, NOISE)


def test_file_that_breaks_off_is_reported():
    with pytest.raises(engine.ImageError, match=r"cannot be read: .*Input/output error"):
        image.read(Dripping(encoded(), breaks_at=100))


def test_truncated_picture_is_not_returned():
    with pytest.raises(engine.ImageError, match="cannot be decoded"):
        image.read(Dripping(encoded()[:-50]))


@pytest.mark.parametrize("numbers", [0, 5])
def test_short_reads_of_weights_are_reported(tiny_detector, monkeypatch, numbers):
    whole = np.fromfile
    monkeypatch.setattr(np, "fromfile", lambda file, kind, count: whole(file, kind, numbers))
    with pytest.raises(engine.WeightsError, match="bias: the file became shorter while it was"):
        engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu")


def test_weights_that_break_off_are_reported(tiny_detector, monkeypatch):
    def break_off(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(weights.np, "fromfile", break_off)
    with pytest.raises(engine.WeightsError, match=r"net\.weights: cannot be read: Input/output"):
        engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu")


@needs_proc
@pytest.mark.parametrize("place", ["--cfg", "--weights", "--names", "picture"])
def test_file_that_opens_but_cannot_be_read_is_one_error_line(
    tiny_detector, tmp_path, capsys, place
):
    picture = tmp_path / "a.png"
    picture.write_bytes(encoded())
    given = {
        "--cfg": tiny_detector.cfg,
        "--weights": tiny_detector.weights,
        "--names": tiny_detector.names,
        "picture": picture,
    }
    given[place] = UNREADABLE
    picture = given.pop("picture")
    options = [str(each) for pair in given.items() for each in pair]
    status = cli.main(["detect", *options, "--device", "cpu", str(picture)])
    lines = capsys.readouterr().err.splitlines()
    assert status == (1 if place == "picture" else 3)
    assert len(lines) <= 2
    assert "cannot be read: Input/output error" in lines[0]
