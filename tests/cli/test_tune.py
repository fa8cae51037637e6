"""python -m engine tune, on a GPU of the host whose times are made up."""

import json
from contextlib import closing

import pytest

from engine import backends, cli
from engine.backends.cuda.tune import tune_layers
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.cuda.test_tune import Clock


@pytest.fixture(autouse=True)
def card(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tune_layers, "measure", Clock(tiled=0.1))
    with on_tape(HostDevice(runs_kernels=False)) as device:
        monkeypatch.setattr(backends, "open_chosen", lambda *_: device)
        monkeypatch.setattr(device, "close", lambda: None)
        yield device


def tune(*words):
    return cli.main(["tune", *map(str, words)])


@pytest.mark.slow
def test_choices_are_made_shown_and_carried_to_another_machine(
    tiny_detector, tmp_path, monkeypatch, capsys
):
    files = tiny_detector.cfg, tiny_detector.weights
    path = tmp_path / "tuned.json"
    assert tune(*files, "--batch", "1,2", "--seconds", "5", "--export", path) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert [line.partition(": ")[0] for line in lines[:2]] == [
        f"net.cfg, float32, batch {batch}" for batch in (1, 2)
    ]
    assert lines[2].endswith("convolutions of host")
    assert "batch 2: measuring convolution 1 of " in told.err

    monkeypatch.setenv("ENGINE_CACHE", str(tmp_path / "elsewhere"))
    with closing(HostDevice(runs_kernels=False)) as other:
        monkeypatch.setattr(backends, "open_chosen", lambda *_: other)
        assert tune("--import", path) == 0
        assert dict(other.measured) == json_choices(path)
    assert capsys.readouterr().out == f"{path}: {len(json_choices(path))} convolutions\n"


@pytest.mark.slow
def test_precision_size_and_overwrite(card, tmp_path, capsys):
    path = tmp_path / "tuned.json"
    path.write_text("mine")
    words = "--model", "codes", "--size", "32", "--precision", "float16", "--seconds", "1"
    assert tune(*words, "--device", "cuda:0", "--export", path, "--overwrite") == 0
    assert "codes.cfg, float16, batch 1: " in capsys.readouterr().out
    assert all(key.startswith(("float16", "float32")) for key in json_choices(path))
    sides = {key.split()[2].partition("x")[2] for key in json_choices(path)}
    assert sides <= {"32x32", "16x16", "8x8", "4x4", "2x2", "1x1"}


def json_choices(path):
    known = json.loads(path.read_text())["choices"]
    return {key: tune_layers.Choice(*each) for key, each in known.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"card": "NVIDIA T4"}, "is for NVIDIA T4, and host is host"),
        ({"made_by": "0"}, "is of another version of the engine"),
        ({"choices": [1]}, "is damaged"),
        ({"networks": {"a": {}}}, "is damaged"),
        ({"near": {"a": 1}}, "is damaged"),
        (None, "expected choices of algorithms"),
        ("{", "expected what --export wrote"),
    ],
)
def test_what_does_not_fit_is_refused(card, tmp_path, capsys, change, message):
    path = tmp_path / "tuned.json"
    given = card.known_choices()
    given = {**given, **change} if isinstance(change, dict) else change
    path.write_text(given if isinstance(given, str) else json.dumps(given))
    assert tune("--import", path) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert not card.measured


def test_misuse_is_one_error_line(tiny_detector, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.json").write_text("mine")
    (tmp_path / "deep.json").write_text("[" * 200_000)
    for words, message in [
        (["--export", tmp_path / "mine.json"], "exists already"),
        (["--seconds", "0"], "--seconds: expected at least 1, got 0"),
        (["--import", tmp_path / "none.json"], "none.json: cannot be read: No such file"),
        (["--import", tmp_path], "expected a file, got a folder"),
        (["--import", tmp_path / "deep.json"], "deep.json: expected what --export wrote"),
    ]:
        assert tune(tiny_detector.cfg, tiny_detector.weights, *words) == 2
        told = capsys.readouterr().err
        assert message in told
        assert told.count("\n") == 1
    assert (tmp_path / "mine.json").read_text() == "mine"


def test_a_cpu_has_nothing_to_tune(tiny_detector, monkeypatch, capsys):
    from engine.backends import open_device

    monkeypatch.setattr(backends, "open_chosen", lambda *_: open_device("cpu"))
    assert tune(tiny_detector.cfg, tiny_detector.weights) == 2
    assert "expected one GPU, which has autotuning. Try: --device cuda:0" in capsys.readouterr().err
