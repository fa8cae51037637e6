"""Trained networks: darknet's detections and the reference outputs of published models.

ENGINE_YOLOV3_TINY names the folder of yolov3-tiny.weights.
"""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import cli
from engine.backends import open_device
from engine.bundled import folder
from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.passes import optimise
from tests import needs
from tests.devices import open_or_skip

SHARED = Path(__file__).parents[2] / "shared"
REAL = SHARED / "golden" / "real"
PICTURES = sorted((REAL / "images").iterdir()) if REAL.is_dir() else []
MODELS = sorted((SHARED / "models").glob("*/reference.npz"))
WEIGHTS = Path(os.environ.get("ENGINE_YOLOV3_TINY", "weights")) / "yolov3-tiny.weights"

needs_yolov3_tiny = pytest.mark.skipif(
    not (REAL.is_dir() and WEIGHTS.is_file()),
    reason="ENGINE_YOLOV3_TINY names no weights. Set it to DIR of ../shared/get_yolov3_tiny.sh DIR",
)

DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.cuda)]
RESIZES = {"resize": "stretch", "letterbox": "letterbox"}
# pixels, score; darknet's JPEG decoder and libjpeg round colours differently
TOLERANCES = {"stb.png": (0.5, 1e-3), "jpg": (1.5, 0.01)}


@pytest.fixture(scope="module", params=DEVICES)
def device(request):
    open_or_skip(lambda: open_device(request.param)).close()
    return request.param


@pytest.fixture(scope="module", params=RESIZES)
def yolov3_tiny(request, device):
    official = SHARED / "cfgs" / "yolov3-tiny.cfg"
    names = folder("cfg") / "coco.names"
    resize = RESIZES[request.param]
    with engine.load(
        official, WEIGHTS, names, device=device, resize=resize, orient=False
    ) as detector:
        yield request.param, detector


@pytest.mark.slow
@needs_yolov3_tiny
@pytest.mark.parametrize("option", ["", "-letter_box"])
@pytest.mark.parametrize("name", ["dog", "eagle", "giraffe"])
def test_detector_test_prints_what_darknet_printed(tmp_path, monkeypatch, capsys, name, option):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coco.data").write_text(f"names = {folder('cfg') / 'coco.names'}\n")
    # the pixels that darknet's decoder made of data/NAME.jpg
    picture = str(REAL / "images" / f"{name}.stb.png")
    model = ["coco.data", str(SHARED / "cfgs" / "yolov3-tiny.cfg"), str(WEIGHTS)]
    options = ["-thresh", "0.25", "-ext_output", "-dont_show", "-nogpu", *option.split()]
    assert cli.main(["detector", "test", *model, picture, *options]) == 0
    text = capsys.readouterr().out.replace(picture, f"data/{name}.jpg")
    recorded = (REAL / "yolov3-tiny" / f"{name}{'_letterbox' * bool(option)}.txt").read_text()
    expected = re.sub(" Used .*\n", "", recorded)  # how that darknet was compiled
    found, wanted = (re.sub(r"in \d+\.\d{6} milli", "", each) for each in (text, expected))
    percent = re.compile(r"\d+(?=%)")
    assert percent.sub("", found) == percent.sub("", wanted)
    # The eagle's score is 0.76500: a last bit decides which way it is rounded.
    pairs = zip(percent.findall(found), percent.findall(wanted), strict=True)
    assert all(abs(int(one) - int(other)) <= 1 for one, other in pairs)


@pytest.mark.slow
@needs_yolov3_tiny
@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_yolov3_tiny_finds_what_darknet_finds(yolov3_tiny, picture):
    mode, detector = yolov3_tiny
    name, _, ending = picture.name.partition(".")
    golden = json.loads((REAL / "yolov3-tiny" / "detections.json").read_text())[name]
    width, height = golden["w"], golden["h"]
    pixels, score = TOLERANCES[ending]
    result = detector(picture)
    assert result.size == (width, height)
    found = sorted(
        zip(result.class_ids.tolist(), result.scores.tolist(), result.xywh.tolist(), strict=True)
    )
    expected = sorted(
        (class_id, probability, [x * width, y * height, w * width, h * height])
        for class_id, probability, x, y, w, h, *_ in golden[mode]["detections"]["after_nms"]
    )
    assert [row[0] for row in found] == [row[0] for row in expected]
    for (_, got_score, got_box), (_, want_score, want_box) in zip(found, expected, strict=True):
        assert got_score == pytest.approx(want_score, abs=score)
        assert got_box == pytest.approx(want_box, abs=pixels)


def reference_layers(reference, on, *, size, passes):
    """Return every layer's output with batch norm dividing by sqrt(variance + 1e-6).

    The program that made the references used that epsilon. Darknet and this engine add 1e-5, so
    the difference is subtracted from the variances.
    """
    stem = reference.parent / reference.parent.name
    network = graph.build(cfg.read(f"{stem}.cfg"), size=size)
    layers = weights.load(f"{stem}.weights", network)
    for arrays in layers:
        for name in arrays:
            if name.endswith("variance"):
                arrays[name] = (arrays[name].astype(np.float64) - 9e-6).astype(np.float32)
    plan = lower(network, layers).keeping_layers()
    device = open_device(on)
    program = device.compile(optimise(plan, device.passes) if passes else plan)
    with np.load(reference) as golden:
        outputs = program.forward(golden["input"][None])
    device.close()
    values = dict(zip(program.plan.outputs, outputs, strict=True))
    return [values[tensor] for tensor in program.plan.layers]


@needs.shared("models")
@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("reference", MODELS, ids=lambda path: path.parent.name)
def test_published_models_give_their_reference_outputs(device, reference, passes):
    with np.load(reference) as golden:
        _, height, width = golden["input"].shape
        layers = reference_layers(reference, device, size=(width, height), passes=passes)
        for name in golden.files:
            if name.startswith("pre_head"):
                assert error(layers[int(name.partition("layer")[2])], golden[name]) < 1e-4
        if "output" in golden.files:
            assert error(layers[-1], golden["output"]) < 1e-4
        heads = {index for index in range(len(layers)) if f"layer{index - 1}" in str(golden.files)}
        for index, want in enumerate(golden["layer_absmax"]):
            if index not in heads:
                assert np.abs(layers[index]).max() == pytest.approx(want, rel=1e-4), index


@pytest.mark.slow
@needs.shared("models")
@pytest.mark.parametrize("reference", MODELS, ids=lambda path: path.parent.name)
def test_published_models_give_finite_outputs(reference):
    """Test finite outputs; one model has variances just below zero."""
    stem = reference.parent / reference.parent.name
    with engine.load(f"{stem}.cfg", f"{stem}.weights", device="cpu") as network:
        width, height = network.size
        x = np.random.default_rng(0).random((1, 3, height, width), np.float32)
        assert all(np.isfinite(each).all() for each in network.layer_outputs(x))
        assert all(np.isfinite(each).all() for each in network.forward(x))


def error(got, want):
    return np.linalg.norm(got.ravel() - want.ravel()) / np.linalg.norm(want)


COCO = SHARED / "images" / "coco_val32"


@pytest.mark.slow
@needs_yolov3_tiny
@pytest.mark.skipif(not COCO.is_dir(), reason="../shared/images/coco_val32 is missing")
def test_detector_map_is_that_of_darknet(tmp_path, capsys):
    """Compare with what darknet's commit 7753a965 prints for the same 32 pictures."""
    (tmp_path / "valid.txt").write_text(
        "".join(f"{each}\n" for each in sorted((COCO / "images").iterdir()))
    )
    data = tmp_path / "coco.data"
    data.write_text(f"classes=80\nvalid={tmp_path}/valid.txt\nnames={COCO / 'coco.names'}\n")
    network = WEIGHTS.with_suffix(".cfg")
    assert cli.main(["detector", "map", str(data), str(network), str(WEIGHTS), "-nogpu"]) == 0
    text = capsys.readouterr().out
    assert "name = stop sign, ap = 50.00%" in text
    mean = re.search(r"mean average precision \(mAP@0\.50\) = (\S+),", text)[1]
    assert float(mean) == pytest.approx(0.3018, abs=5e-5)
    counts = "TP = 79, FP = 34, FN = 142, average IoU = 52.42 %"
    assert counts in text
    options = ["--device", "cpu", "--method", "darknet"]
    assert cli.main(["evaluate", str(data), str(network), str(WEIGHTS), *options]) == 0
    ours = capsys.readouterr().out
    assert counts in ours
    assert f"(mAP@0.50) = {mean}," in ours
