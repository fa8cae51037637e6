"""python -m engine export, in a child process; ONNX Runtime loads the file."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from engine import cli, load
from engine.errors import InputError
from tests import needs
from tests.cli.child import engine_here
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
    done = engine_here(
        "export", "onnx", tiny_detector.cfg, tiny_detector.weights, "-o", path, *options
    )
    assert (done.status, done.err) == (0, "")
    opset = 17 if "--opset" in options else 13
    head, *told = done.out.splitlines()
    assert head == f"{path}: {path.stat().st_size:,} bytes, opset {opset}, float32"
    assert [line.split()[:2] for line in told] == [
        ["input", "images"],
        *(["output", name] for name in outputs),
    ]
    session = opened(path)
    (source,) = session.get_inputs()
    sides = (64, 32) if "--size" in options else (48, 64)
    assert source.name == "images"
    assert source.shape == [4 if "--batch" in options else "batch", 3, *sides]
    found = session.run(None, {source.name: np.zeros((batch, 3, *sides), np.float32)})
    names = [each.name for each in session.get_outputs()]
    assert dict(zip(names, (each.shape for each in found), strict=True)) == outputs


def exported(capsys, model, path, *options):
    """Export in this process; return what is printed."""
    command = ["export", "onnx", "--cfg", str(model.cfg), "--weights", str(model.weights)]
    status = cli.main([*command, "-o", str(path), *options])
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_network_may_be_named(tmp_path, monkeypatch, capsys, has_folder):
    monkeypatch.chdir(tmp_path)
    if has_folder:
        (tmp_path / "codes").mkdir()
    path = tmp_path / "codes.onnx"
    assert cli.main(["export", "onnx", "codes", "-o", str(path)]) == 0
    told = capsys.readouterr()
    assert (told.out.startswith(f"{path}: "), told.err) == (True, "")


def test_inputs_and_outputs_are_told(tmp_path, tiny_detector, capsys):
    path = tmp_path / "net.onnx"
    out = exported(capsys, tiny_detector, path, "--nms", "--max-det", "20", "--half")
    assert out.splitlines() == [
        f"{path}: {path.stat().st_size:,} bytes, opset 13, float16",
        "  input   images float32 (batch, 3, 48, 64)  RGB from 0 to 1, pictures stretched",
        "  output  boxes float32 (batch, 20, 4)       x, y, w, h from 0 to 1; the rest is 0",
        "  output  scores float32 (batch, 20)         the best first; the rest is 0",
        "  output  classes int64 (batch, 20)          the rest is -1",
        "  output  count int64 (batch,)               the number of boxes",
    ]
    options = ("--layout", "yolov8", "--dynamic", "--batch", "1", "--overwrite")
    out = exported(capsys, tiny_detector, path, *options)
    assert "images float32 (1, 3, height, width)" in out
    assert "output0 float32 (1, 7, rows)" in out


def test_names_go_into_the_file(tmp_path, tiny_detector, capsys):
    path = tmp_path / "net.onnx"
    exported(capsys, tiny_detector, path, "--names", str(tiny_detector.names))
    found = opened(path).get_modelmeta().custom_metadata_map
    assert found["names"] == "{0: 'cat', 1: 'dog', 2: 'cow'}"
    data = tmp_path / "my.data"
    data.write_text(f"names = {tiny_detector.names}\n")
    exported(capsys, tiny_detector, path, "--data", str(data), "--overwrite")
    assert "'dog'" in opened(path).get_modelmeta().custom_metadata_map["names"]
    exported(capsys, tiny_detector, path, "--overwrite")
    assert "'dog'" in opened(path).get_modelmeta().custom_metadata_map["names"]
    cfg = shutil.copy(tiny_detector.cfg, tmp_path / "other.cfg")
    exported(capsys, replace(tiny_detector, cfg=cfg), path, "--overwrite")
    assert "'class 1'" in opened(path).get_modelmeta().custom_metadata_map["names"]


def test_settings_of_nms_have_an_effect(tmp_path, tiny_detector, capsys):
    counts = []
    for options in ((), ("--threshold", "1"), ("--iou", "0.1"), ("--max-det", "3")):
        path = tmp_path / f"{len(counts)}.onnx"
        exported(capsys, tiny_detector, path, "--nms", *options)
        images = np.random.default_rng(0).random((1, 3, 48, 64), np.float32)
        counts.append(int(opened(path).run(["count"], {"images": images})[0][0]))
    assert counts[1] == 0
    assert counts[0] > counts[2] > 0
    assert counts[3] == 3


def test_a_detector_exports_itself(tmp_path, tiny_detector):
    with load(tiny_detector.cfg, tiny_detector.weights, tiny_detector.names) as detector:
        path = tmp_path / "net.onnx"
        model = detector.export(path, layout="yolov5", half=True)
        assert path.read_bytes() == model.content
        assert [each.name for each in model.outputs] == ["output0"]
        assert "'cow'" in model.metadata["names"]
        with pytest.raises(InputError, match="exists already"):
            detector.export(path)
        detector.export(str(path), nms=True, threshold=0.5, overwrite=True)
        assert opened(path).get_outputs()[0].name == "boxes"
        for wrong in ({"iou": 0.3}, {"layout": "raw", "nms": True}, {"batch": 0}):
            with pytest.raises(InputError, match=next(iter(wrong)).replace("layout", "nms")):
                detector.export(tmp_path / "other.onnx", **wrong)
        with pytest.raises(InputError, match=r"expected a name that ends in \.onnx"):
            detector.export(tmp_path / "net.txt")
        for name in ("nms", "half", "dynamic", "overwrite"):
            for word in ("no", 1, None):
                wrong = {name: word}
                message = f"^{name}: expected True or False, got {word!r}$"
                with pytest.raises(InputError, match=message):
                    detector.export(tmp_path / "other.onnx", **wrong)
        assert not (tmp_path / "other.onnx").exists()


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
        (["onnx", "codess", "-o", "x"], "a name of: models list. Did you mean 'codes'?"),
        (["onnx", "yolov3tiny", "-o", "x"], "a name of: models list. Did you mean 'yolov3-tiny'?"),
        (
            ["onnx", "--batch", "0", "-o", "x.onnx"],
            "batch: expected an integer of 1 or more, got 0",
        ),
        (["onnx", "--cfg", "x.cfg", "-o", "x.onnx"], "no model: name one with --model"),
        (["onnx", "--nms", "--iou", "45", "-o", "x.onnx"], "got 45.0. Did you mean 0.45?"),
        (["onnx", "--conf", "0.3", "-o", "x.onnx"], "threshold: expected nms, too, got 0.3 alone"),
        (["onnx", "--nms", "--max-det", "0", "-o", "x.onnx"], "max_detections: expected an"),
        (["onnx", "--layout", "yolo8", "-o", "x.onnx"], "Did you mean 'yolov8'?"),
        (["onnx", "--layout", "raw", "--nms", "-o", "x.onnx"], "expected the layout darknet, "),
        (
            ["onnx", "--batch", "9" * 20, "-o", "x.onnx"],
            "batch: expected at most 2147483647, got 99",
        ),
        (["onnx", "-o", "x.txt"], "-o x.txt: expected a name that ends in .onnx"),
        (["onnx", "--model", "yolov3-tinny", "-o", "x"], "Did you mean 'yolov3-tiny'?"),
    ],
)
def test_misuse_is_one_error_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
