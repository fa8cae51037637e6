"""python -m engine info, layers."""

import os
from pathlib import Path

import pytest

from engine import cli
from engine.bundled import folder

YOLOV3_TINY = str(folder("cfg") / "yolov3-tiny.cfg")


def test_info_prints_layers_work_and_the_exact_size(capsys):
    assert cli.main(["info", YOLOV3_TINY]) == 0
    out = capsys.readouterr().out
    assert "35,434,956 bytes" in out
    assert "5.565 BFLOPs" in out
    rows = [line.split() for line in out.splitlines() if line.lstrip()[:1].isdigit()]
    assert [int(row[0]) for row in rows] == list(range(24))
    assert rows[0][:3] == ["0", "convolutional", "input"]


def test_info_takes_another_size(capsys):
    assert cli.main(["info", "--cfg", YOLOV3_TINY, "--size", "320x256"]) == 0
    assert "255 x 8 x 10" in capsys.readouterr().out


def test_memory_does_not_need_the_weights(capsys):
    cli.main(["info", YOLOV3_TINY])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("memory")]
    planned = [float(word) for word in line.split() if word.replace(".", "").isdigit()]
    assert 30 < planned[0] < 120


@pytest.mark.parametrize("second", [["my.weights"], ["--cfg", "my.cfg"], ["--model", "yolov4"]])
def test_info_refuses_a_second_network(second, capsys):
    assert cli.main(["info", YOLOV3_TINY, *second]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"expected one CFG, got 2: {second[-1]!r}" in line
    assert line.endswith("python -m engine weights info CFG WEIGHTS")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("command", ["info", "benchmark"])
def test_a_pipe_or_a_folder_is_called_so(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("yolov3-tiny").mkdir()
    for name in ("pipe", "folder"):
        assert cli.main([command, name]) > 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"Error: {name}: expected a file, got a {name}"
    assert cli.main(["info", "yolov3-tiny"]) == 0


def test_info_describes_the_default_model(capsys):
    assert cli.main(["info"]) == 0
    told = capsys.readouterr()
    assert "detector of 5 classes" in told.out
    assert told.err.startswith("model: codes (bundled)")


@pytest.mark.parametrize("section", ["maxpool", "[maxpool]", "max"])
def test_layers_shows_one_section_by_any_spelling(section, capsys):
    assert cli.main(["layers", section]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == "[maxpool] [max]"
    assert any(row.split() == ["stride", "1"] for row in rows)


def test_layers_shows_all_sections(capsys):
    assert cli.main(["layers"]) == 0
    out = capsys.readouterr().out
    assert {"[net]", "[yolo]", "[convolutional]", "[lstm]"} <= set(out.split())


def test_unknown_section_is_reported(capsys):
    assert cli.main(["layers", "maxpol"]) == 2
    assert "Did you mean 'maxpool'?" in capsys.readouterr().err
