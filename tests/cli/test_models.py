"""python -m engine models, and --model where a network is named."""

import hashlib
from argparse import Namespace
from dataclasses import replace
from functools import partial

import pytest

from engine import cli
from engine.cli import _network
from engine.models import registry, store
from engine.models.registry import Model
from tests.models import misbehaving_server as answers
from tests.models.misbehaving_server import BODY, Server

SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINE_CACHE", str(tmp_path))
    monkeypatch.delenv("ENGINE_OFFLINE", raising=False)
    return tmp_path / "models"


@pytest.fixture
def server(monkeypatch):
    """Serve the only network of a small zoo over plain HTTP."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    model = Model(
        name="net",
        task="detector",
        input=416,
        file="net.weights",
        bytes=len(BODY),
        hashes={"sha256": SHA256},
        urls=(running.address(),),
        names_file=None,
        note="",
    )
    zoo = {"net": model, "other": replace(model, name="other", file="other.weights", hashes={})}
    monkeypatch.setattr(registry, "models", lambda: zoo)
    monkeypatch.setattr(store, "pull", partial(store.pull, allow_http=True))
    yield running
    running.close()


def run(capsys, *arguments):
    status = cli.main(list(arguments))
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_list_shows_every_network(capsys, folder):
    status, out, _ = run(capsys, "models", "list")
    assert status == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert set(registry.models()) <= set(rows)
    assert rows["yolov4-tiny"].split()[1:] == ["detector", "416", "24.3", "to", "pull"]
    assert str(folder) in out


def test_pull_downloads_and_prints_the_path(capsys, server, folder):
    server.answers["/net.weights"] = [answers.ranged]
    status, out, err = run(capsys, "models", "pull", "net")
    assert (status, out) == (0, f"{folder / 'net.weights'}\n")
    assert err == "net.weights: downloading 0.2 MB\n"
    assert run(capsys, "models", "path", "net") == (0, out, "")
    assert "is already present" in run(capsys, "models", "pull", "net")[1]
    assert run(capsys, "models", "verify") == (0, "net: as published\n", "")
    assert "here" in run(capsys, "models", "list", "net")[1]


def test_verify_reports_an_empty_folder(capsys, folder):
    message = f"nothing to verify: no weights are in {folder}\n"
    assert run(capsys, "models", "verify") == (0, message, "")


def test_pull_continues_after_a_failure(capsys, server, folder):
    server.answers["/net.weights"] = [answers.status(404), answers.ranged]
    status, out, err = run(capsys, "models", "pull", "net", "other")
    assert status == 1
    assert out == f"{folder / 'other.weights'}\n"
    first, *rest = err.splitlines()
    assert first.startswith("Error: net.weights: cannot be downloaded. 127.0.0.1:")
    assert first.endswith("404 Not Found")
    assert rest == ["other.weights: downloading 0.2 MB"]
    assert "first downloaded" in run(capsys, "models", "verify", "other")[1]


def test_verify_fails_for_damaged_or_named_missing_models(capsys, server, folder):
    folder.mkdir()
    (folder / "net.weights").write_bytes(BODY[::-1])
    status, out, err = run(capsys, "models", "verify", "net", "other")
    assert (status, out) == (1, "")
    damaged, missing = err.splitlines()
    assert "sha256: expected" in damaged
    assert missing == "Error: other: no weights on this machine"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["models"], 2, "the following arguments are required: ACTION. See: "),
        (["weights"], 2, "the following arguments are required: ACTION. See: "),
        (["export"], 2, "the following arguments are required: FORMAT. See: "),
        (["models", "pul", "yolov4"], 2, "no action 'pul'"),
        (["models", "pul", "yolov4"], 2, "Did you mean 'pull'?"),
        (["models", "pull"], 2, "expected at least one NAME"),
        (["models", "pull", "yolv4"], 2, "Did you mean 'yolov4'?"),
        (
            ["models", "path", "yolov4"],
            3,
            "no weights on this machine. Run: python -m engine models pull yolov4",
        ),
        (
            ["models", "path", "yolov3-voc"],
            3,
            "no weights on this machine: nobody publishes weights; train your",
        ),
        (["models", "path", "yolov4", "yolov3"], 2, "expected one NAME, got 2"),
        (["models", "pull", "yolov3-voc"], 1, "nobody publishes weights"),
        (["info", "yolv4"], 2, "Did you mean 'yolov4'?"),
        (["detect", "--model", "yolov4", "--cfg", "x.cfg", "a.jpg"], 2, "expected one of them"),
        (["detect", "--model", "yolv4", "a.jpg"], 2, "Did you mean 'yolov4'?"),
    ],
)
def test_misuse_is_one_error_line(capsys, arguments, status, message):
    got, _, err = run(capsys, *arguments)
    (line,) = err.splitlines()
    assert (got, message in line) == (status, True), line


@pytest.mark.parametrize("name", ["detect", "classify"])
def test_missing_model_is_reported_offline(capsys, monkeypatch, folder, name):
    monkeypatch.setenv("ENGINE_OFFLINE", "1")
    status, _, err = run(capsys, name, "--model", "yolov4-tiny", "a.jpg")
    assert status == 3
    assert err.startswith(f"Error: {folder / 'yolov4-tiny.weights'}: does not exist, and")


@pytest.mark.parametrize("arguments", [["yolov4-tiny"], ["--model", "yolov4-tiny"]])
def test_info_takes_a_name_and_needs_no_weights(capsys, arguments):
    status, out, _ = run(capsys, "info", *arguments)
    assert status == 0
    assert "24,251,276 bytes" in out


@pytest.mark.parametrize("inputs", [["codes", "a.png"], ["a.png", "codes"]])
def test_a_name_among_pictures_is_the_network(inputs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = Namespace(cfg=None, weights=None, model=None)
    assert _network.take_files(arguments, inputs) == ["a.png"]
    assert arguments == Namespace(cfg=None, weights=None, model="codes")
    (tmp_path / "codes").mkdir()
    arguments = Namespace(cfg=None, weights=None, model=None)
    assert _network.take_files(arguments, inputs, may_be_folders=True) == inputs
    assert arguments.model is None
    assert _network.take_files(arguments, inputs) == ["a.png"]
    assert arguments.model == "codes"


def test_a_file_that_is_named_like_a_network_is_an_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "codes").write_bytes(b"")
    arguments = Namespace(cfg=None, weights=None, model=None)
    assert _network.take_files(arguments, ["codes"]) == ["codes"]


def test_weights_may_be_given_with_the_model(capsys, tmp_path):
    weights = tmp_path / "mine.weights"
    weights.write_bytes(bytes(20))
    status, _, err = run(
        capsys, "detect", "--model", "yolov4-tiny", "--weights", str(weights), "a.jpg"
    )
    assert status == 3
    assert weights.name in err, "the zoo's .cfg, our weights"
