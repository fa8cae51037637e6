"""python -m engine compare, in a child process."""

import errno
import io
import os
import sys

import pytest

from engine import cli
from engine.errors import EngineError
from tests.cli.child import engine_here
from tests.pictures import write_picture


class FullDisk(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "dog.png"
    write_picture(path)
    return path


def test_runs_that_agree(tiny_detector, picture):
    done = engine_here(
        "compare", picture, tiny_detector.cfg, tiny_detector.weights, "--second", "cpu"
    )
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("cpu/float32/no-passes and cpu/float32 agree in all 4 layers: ")


def test_first_differing_layer_is_reported(tiny_detector, picture):
    ways = ["--first", "cpu/float64", "--second", "cpu", "--tolerance", "1e-12"]
    done = engine_here(
        *("compare", picture, "--cfg", tiny_detector.cfg, "--weights", tiny_detector.weights), *ways
    )
    assert (done.status, done.err) == (1, "")
    assert "differ from layer 0 [convolutional] on: " in done.out
    assert "more than 1e-12; at channel, row, column " in done.out


def test_auto_is_reported_as_the_chosen_device(tiny_detector, picture, capsys):
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["compare", str(picture), *files]) == 0
    first, _, second, *_ = capsys.readouterr().out.split()
    assert first == "cpu/float32/no-passes"
    assert second in ("cpu/float32", "cuda:0/float32")


def test_a_full_disk_is_no_differing_layer(tiny_detector, picture, monkeypatch, capsys):
    words = [str(picture), str(tiny_detector.cfg), str(tiny_detector.weights), "--second", "cpu"]
    monkeypatch.setattr(sys, "stdout", FullDisk())
    assert cli.main(["compare", *words]) == 2
    assert capsys.readouterr().err == "Error: -: cannot be written: No space left on device\n"


def test_all_lists_every_layer(tiny_detector, picture, capsys):
    words = [str(picture), str(tiny_detector.cfg), str(tiny_detector.weights), "--all"]
    assert cli.main(["compare", *words, "--second", "cpu"]) == 0
    heading, *rows, _ = capsys.readouterr().out.splitlines()
    assert heading.split()[:4] == ["layer", "section", "output", "difference"]
    assert [row.split()[1] for row in rows] == [
        *("convolutional", "maxpool", "convolutional", "yolo")
    ]


def test_random_weights_and_another_size_are_accepted(tiny_detector, picture, capsys):
    words = [str(picture), "--cfg", str(tiny_detector.cfg), "--size", "32x32", "--second", "cpu"]
    assert cli.main(["compare", *words]) == 0
    told = capsys.readouterr()
    assert "no weights given: random weights are used" in told.err
    assert "agree in all 4 layers" in told.out


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "expected one IMAGE, got 0"),
        (["a.png", "b.png"], 2, "expected one IMAGE, got 2"),
        (["missing.png"], 2, "missing.png: picture: cannot be read"),
        (["PICTURE", "--second", "cpu/half"], 2, "expected DEVICE"),
        (["PICTURE", "--tolerance", "nan"], 2, "expected a number of 0 or more, got 'nan'"),
        (["PICTURE", "--tolerance", "-1"], 2, "expected a number of 0 or more, got '-1'"),
        (["PICTURE", "--tolerance", "much"], 2, "expected a number of 0 or more, got 'much'"),
        (["PICTURE", "--first", "gpu"], 4, "expected one of cpu, cuda, ort"),
    ],
)
def test_mistakes_are_one_error_line(tiny_detector, picture, capsys, words, status, message):
    words = [str(picture) if word == "PICTURE" else word for word in words]
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["compare", *words, *files]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("is_first", [True, False])
def test_a_network_may_be_named(picture, capsys, is_first):
    words = ["codes", str(picture)] if is_first else [str(picture), "codes"]
    assert cli.main(["compare", *words, "--size", "64", "--second", "cpu"]) == 0
    told = capsys.readouterr()
    assert (told.out[: len("cpu")], told.err) == ("cpu", "")


def test_an_error_has_another_status_than_a_difference(tiny_detector, picture, monkeypatch, capsys):
    def overflow(*_):
        raise EngineError("layer 0: activations reach 1e9, beyond float16")

    monkeypatch.setattr("engine.compare.compare", overflow)
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["compare", str(picture), *files, "--second", "cpu"]) == 2
    assert capsys.readouterr().err == "Error: layer 0: activations reach 1e9, beyond float16\n"


def test_a_network_without_pictures_is_refused(tiny_recurrent, picture, capsys):
    files = [str(tiny_recurrent.cfg), str(tiny_recurrent.weights)]
    assert cli.main(["compare", str(picture), *files]) == 2
    assert "expected a network for pictures" in capsys.readouterr().err
