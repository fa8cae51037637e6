"""python -m engine export, in a child process; ONNX Runtime loads the file."""

import numpy as np
import pytest

from engine import cli
from tests import needs
from tests.cli.child import engine
from tests.lanes import slow

needs.package("onnx")
onnxruntime = needs.package("onnxruntime")


def opened(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("options", "batch", "outputs"),
    [
        ([], 3, {"layer_3": (3, 16, 12, 16)}),
        (["--decode"], 2, {"detections": (2, 12 * 16 * 2, 8)}),
        slow((["--batch", 4], 4, {"layer_3": (4, 16, 12, 16)})),
        slow((["--size", "32x64"], 1, {"layer_3": (1, 16, 16, 8)})),
        slow((["--opset", 17], 1, {"layer_3": (1, 16, 12, 16)})),
    ],
    ids=lambda each: " ".join(map(str, each)) if isinstance(each, list) else "",
)
def test_onnx_runtime_opens_what_is_written(tmp_path, tiny_detector, options, batch, outputs):
    path = tmp_path / "net.onnx"
    done = engine("export", "onnx", tiny_detector.cfg, tiny_detector.weights, "-o", path, *options)
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{path}: {path.stat().st_size:,} bytes\n"
    session = opened(path)
    (source,) = session.get_inputs()
    sides = (64, 32) if "--size" in options else (48, 64)
    assert source.name == "images"
    assert source.shape == [4 if "--batch" in options else "batch", 3, *sides]
    found = session.run(None, {source.name: np.zeros((batch, 3, *sides), np.float32)})
    names = [each.name for each in session.get_outputs()]
    assert dict(zip(names, (each.shape for each in found), strict=True)) == outputs


def test_a_file_is_replaced_only_when_asked(tmp_path, tiny_detector, capsys):
    path = tmp_path / "net.onnx"
    path.write_text("mine")
    command = ["export", "onnx", "--cfg", str(tiny_detector.cfg)]
    command += ["--weights", str(tiny_detector.weights), "-o", str(path)]
    assert cli.main(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert cli.main([*command, "--overwrite"]) == 0
    opened(path)
    assert [each.name for each in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("kind", ["cfg", "weights"])
def test_network_is_not_replaced(tiny_detector, capsys, kind):
    path = getattr(tiny_detector, kind)
    before = path.read_bytes()
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["export", "onnx", *files, "-o", str(path), "--overwrite"]) == 2
    assert "would replace a file that is read" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_layer_that_onnx_cannot_hold_is_named(tmp_path, tiny_recurrent, capsys):
    path = tmp_path / "net.onnx"
    files = [str(tiny_recurrent.cfg), str(tiny_recurrent.weights)]
    assert cli.main(["export", "onnx", *files, "-o", str(path)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "net.cfg: layer 0 [rnn]: ONNX: " in line
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["onx", "-o", "x"], "expected onnx, got 'onx'. Did you mean 'onnx'?"),
        (["onnx"], "no output named: expected -o FILE"),
        (["onnx", "a.jpg", "-o", "x"], "unexpected 'a.jpg'"),
        (["onnx", "--batch", "0", "-o", "x"], "--batch: expected 1 or more, got 0"),
        (["onnx", "--cfg", "x.cfg", "-o", "x.onnx"], "no model: name one with --model"),
        (["onnx", "-o", "x.txt"], "-o x.txt: expected a name that ends in .onnx"),
        (["onnx", "--model", "yolov3-tinny", "-o", "x"], "Did you mean 'yolov3-tiny'?"),
    ],
)
def test_misuse_is_one_error_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
