"""The bundled model: default, small, as documented, correct on the README's picture."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import bundled, cli
from engine.vision import image, resize
from tests import needs

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model():
    found = bundled.default_model()
    assert found is not None
    return found


def test_model_is_small_and_as_documented(model):
    contents = model.weights.read_bytes()
    assert len(contents) < 5 << 20
    for guide in ("docs/codes.md", "weights/README.md"):
        text = (ROOT / guide).read_text(encoding="utf-8")
        assert hashlib.sha256(contents).hexdigest() in text
        assert f"{len(contents):,} bytes" in text


def test_model_finds_every_code_in_the_picture(model):
    with engine.load(model.cfg, model.weights, names=model.names, device="cpu") as detector:
        result = detector(ROOT / "docs/parcel.jpg")
    expected = ["aztec", "barcode", "barcode", "datamatrix", "datamatrix", "pdf417", "qr"]
    assert sorted(result.labels) == expected


def test_the_large_model_finds_them_with_higher_scores(model):
    with engine.load(device="cpu") as small, engine.load("codes-large", device="cpu") as large:
        results = [each(ROOT / "docs/parcel.jpg") for each in (small, large)]
    assert sorted(results[0].labels) == sorted(results[1].labels)
    assert min(each.score for each in results[1]) > min(each.score for each in results[0])
    assert large.labels == small.labels
    contents = (model.weights.parent / "codes-large.weights").read_bytes()
    assert len(contents) < 5 << 20
    guide = (ROOT / "weights/README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(contents).hexdigest() in guide


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codes", "codes-large"])
def test_models_in_the_box_run_in_int8(name):
    found = []
    for precision in ("float32", "int8"):
        with engine.load(name, device="cpu", precision=precision) as detector:
            found.append(sorted(detector(ROOT / "docs/parcel.jpg").labels))
    assert found[0] == found[1]


def test_model_has_a_name_and_is_the_default_of_load(model, capsys):
    with engine.load(device="cpu") as unnamed, engine.load(model.cfg.stem, device="cpu") as named:
        assert unnamed.labels == named.labels
        assert "qr" in named.labels
        unnamed_result, named_result = (each(ROOT / "docs/parcel.jpg") for each in (unnamed, named))
    assert unnamed_result.boxes.tolist() == named_result.boxes.tolist()
    assert cli.main(["info", model.cfg.stem]) == 0
    assert f"{model.weights.stat().st_size:,}" in capsys.readouterr().out
    with pytest.raises(engine.EngineError, match=r"expected its \.cfg, too, got none"):
        engine.load(weights=model.weights)


def test_detect_names_the_default_model_and_how_to_get_others(capsys):
    assert cli.main(["detect", str(ROOT / "docs/parcel.jpg"), "--device", "cpu"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    for told in ("codes", "--model", "models list", "--cfg", "--weights"):
        assert told in line


def test_opencv_finds_the_same_boxes(model):
    cv2 = needs.package("cv2")
    if not hasattr(cv2.dnn, "readNetFromDarknet"):
        pytest.skip("this OpenCV does not read darknet networks. Install OpenCV 4")
    network = cv2.dnn.readNetFromDarknet(str(model.cfg), str(model.weights))
    picture = image.read(ROOT / "docs/parcel.jpg")
    with engine.load(model.cfg, model.weights, names=model.names, device="cpu") as detector:
        scaled, _ = resize.stretch(picture, detector.size)
        (ours,) = detector.candidates(scaled[None], threshold=0.25)
    network.setInput(scaled[None])
    rows = np.concatenate(network.forward(network.getUnconnectedOutLayersNames()))
    theirs = rows[rows[:, 5:].max(axis=1) > 0.25]
    ours = ours[ours[:, 5:].max(axis=1) > 0.25]
    assert len(ours) == len(theirs) > 4
    apart = np.abs(ours[:, None, :4] - theirs[None, :, :4]).max(axis=2)
    assert apart.min(axis=0).max() < 1e-3  # each of theirs is one of ours, and vice versa
    assert apart.min(axis=1).max() < 1e-3


def test_the_model_has_scales_for_int8(model):
    with engine.load(precision="int8", device="cpu") as detector:
        result = detector(ROOT / "docs/parcel.jpg")
    expected = ["aztec", "barcode", "barcode", "datamatrix", "datamatrix", "pdf417", "qr"]
    assert sorted(result.labels) == expected
