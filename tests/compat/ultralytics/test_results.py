"""Results and Probs have the attributes and methods of ultralytics."""

import copy
import csv
import io
import json
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine.compat.ultralytics.results import Results
from engine.errors import ImageError, InputError
from engine.vision.frame import Frame
from engine.vision.image import Picture, read
from tests.pictures import write_picture


@pytest.fixture
def result(model):
    return model("a.png", conf=0.01, iou=1.0)[0]


def test_attributes(result):
    assert result.orig_shape == (50, 100)
    with Image.open("a.png") as picture:
        np.testing.assert_array_equal(result.orig_img, np.asarray(picture)[:, :, ::-1])
    assert result.path == "a.png"
    assert set(result.speed) == {"preprocess", "inference", "postprocess"}
    assert result.speed["inference"] > 0
    assert result.probs is result.masks is result.keypoints is result.obb is None
    assert result.cpu().to("cpu").cuda() is result


def test_boxes_end_at_the_edges_of_the_picture(model):
    result = model("a.png", conf=0.01, iou=1.0)[0]
    with engine.load("net.cfg", "net.weights", device="cpu") as detector:
        raw = detector("a.png", threshold=0.01, nms=1.0, max_detections=300)
    assert len(raw) == len(result)
    assert (raw.xyxyn < 0).any() or (raw.xyxyn > 1).any()
    inside = raw.xyxyn.astype(np.float64).clip(0, 1)
    np.testing.assert_allclose(result.boxes.xyxyn, inside, atol=1e-6)
    np.testing.assert_allclose(result.boxes.xyxy, inside * [100, 50, 100, 50], atol=1e-4)
    left, top, right, bottom = result.boxes.xyxy.astype(int).T
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (right <= 100).all()
    assert (bottom <= 50).all()


def test_selection(result):
    assert [len(each) for each in result] == [1] * len(result)
    assert len(result[:1]) == len(result[0]) == len(result[-1]) == 1
    chosen = result[result.boxes.conf > 0.5]
    assert len(chosen) == int((result.boxes.conf > 0.5).sum())
    with pytest.raises(IndexError):
        result[9999]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]
)
def test_copies_of_boxes(result, copied):
    again = copied(result.boxes)
    for name in ("xyxy", "xywhn", "conf", "cls", "data"):
        np.testing.assert_array_equal(getattr(again, name), getattr(result.boxes, name))
    assert again[:1].conf.cpu().tolist() == result.boxes[0].conf.tolist()


def test_text(result):
    assert len(result.summary()) == len(json.loads(result.to_json())) == len(result)
    first = result.summary(normalize=True)[0]
    assert first["name"] == result.names[first["class"]]
    assert set(first["box"]) == {"x1", "y1", "x2", "y2"}
    assert first["box"]["x1"] == pytest.approx(float(result.boxes.xyxyn[0, 0]), abs=1e-4)
    count = result.boxes.cls.tolist().count(first["class"])
    assert f"{count} {first['name']}" in result.verbose()
    assert result[:0].verbose() == "(no detections), "
    assert repr(result).startswith("<Results a.png, 100 x 50:")


def test_pictures(result, tmp_path, monkeypatch):
    drawn = result.plot()
    assert drawn.shape == (50, 100, 3)
    assert (drawn != result.orig_img).any()
    assert result.save(tmp_path / "found.png") == str(tmp_path / "found.png")
    with pytest.raises(InputError, match="exists already"):
        result.save(tmp_path / "found.png", overwrite=False)
    with Image.open(tmp_path / "found.png") as saved:
        np.testing.assert_array_equal(np.asarray(saved)[:, :, ::-1], drawn)
    assert result.save() == "results_a.png"
    with pytest.raises(InputError, match="exists already"):
        result.save()
    assert result.save(overwrite=True) == "results_a.png"
    result.save_crop(tmp_path / "crops", "other.jpg")
    assert list((tmp_path / "crops").glob("*/other.jpg"))
    shown = []
    monkeypatch.setattr(Image.Image, "show", lambda image: shown.append(image.size))
    result.show()
    assert shown == [(100, 50)]


def test_pictures_are_those_of_the_prediction(model, classifier, tmp_path):
    with Image.open("a.png") as picture:
        before = np.asarray(picture)[:, :, ::-1]
    (kept,), (streamed,), (kind,) = model("a.png"), model("a.png", stream=True), classifier("a.png")
    write_picture("a.png", (100, 50), seed=77)
    for each in (kept, kind):
        np.testing.assert_array_equal(each.orig_img, before)
    np.testing.assert_array_equal(kept.plot(boxes=False), before)
    with pytest.raises(ImageError, match=r"^a\.png: has changed since it was read"):
        streamed.plot()
    Path("a.png").unlink()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kept)).orig_img, before)
    kept.save(tmp_path / "found.png")
    kept.save_crop(tmp_path / "crops")


def test_options_of_plot(result, tmp_path):
    drawn = result.plot()
    np.testing.assert_array_equal(np.asarray(result.plot(pil=True))[:, :, ::-1], drawn)
    np.testing.assert_array_equal(result.plot(boxes=False), result.orig_img)
    black = result.plot(img=np.zeros_like(result.orig_img), labels=False, conf=False)
    assert (black == 0).any()
    assert (black == result.plot(labels=False, conf=False)).any()
    result.plot(save=True, filename=tmp_path / "found.png", masks=True, color_mode="class")
    with Image.open(tmp_path / "found.png") as saved:
        np.testing.assert_array_equal(np.asarray(saved)[:, :, ::-1], drawn)
    for options in ({"foo": 3}, {"color_mode": "instance"}, {"font_size": 9}):
        for method in (result.plot, result.save, result.show):
            with pytest.raises(InputError, match=rf"^{next(iter(options))}: .*plot\(\)"):
                method(**options)


def test_files_that_the_caller_names_are_replaced_or_appended_to(result, tmp_path):
    result[:0].save(tmp_path / "found.png")
    without = (tmp_path / "found.png").read_bytes()
    result.save(filename=str(tmp_path / "found.png"))
    assert (tmp_path / "found.png").read_bytes() != without
    labels = tmp_path / "new/labels.txt"
    assert result.save_txt(labels) == str(labels)
    once = labels.read_bytes()
    result.save_txt(str(labels))
    assert labels.read_bytes() == once * 2
    with pytest.raises(InputError, match="cannot be written"):
        result.save_txt(tmp_path)


def test_save_makes_folders(result):
    assert result.save("deep/er/found.png") == "deep/er/found.png"
    result.plot(save=True, filename="other/found.png")
    assert Path("deep/er/found.png").read_bytes() == Path("other/found.png").read_bytes()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"path": "v.mp4", "frame": Frame("v.mp4", 12, 0.4, Fraction(30))}, "v_000012.jpg"),
        ({"path": "0", "frame": Frame("0", 3, 0.1, Fraction(30))}, "0_000003.jpg"),
        ({"path": "more/a.heic"}, "a.jpg"),
        ({"path": "http://example.org/b.png?size=3"}, "b.png"),
    ],
)
def test_save_without_a_name(result, changes, name):
    picture = Picture(result.orig_img)
    made = Results.of(replace(result.result, **changes), picture)
    assert made.save() == f"results_{name}"
    assert Path(f"results_{name}").exists()


def test_no_label_file_without_a_line(result, model):
    nothing = result[:0]
    assert nothing.save_txt("new/labels.txt") == "new/labels.txt"
    assert not Path("new").exists()
    result.save_txt("labels.txt")
    before = Path("labels.txt").read_bytes()
    nothing.save_txt("labels.txt")
    assert Path("labels.txt").read_bytes() == before
    model(["a.png", "more/b.png"], conf=1.0, save_txt=True, project="t", name="a")
    assert list(Path("t/a").rglob("*")) == [Path("t/a/labels")]
    model("a.png", conf=0.01, save_txt=True, project="t", name="a", exist_ok=True)
    before = Path("t/a/labels/a.txt").read_bytes()
    model("a.png", conf=1.0, save_txt=True, project="t", name="a", exist_ok=True)
    assert Path("t/a/labels/a.txt").read_bytes() == before


def test_a_data_frame(result):
    pytest.importorskip("pandas", reason="pandas is not installed. Run: pip install pandas")
    frame = result.to_df(normalize=True, decimals=3)
    assert list(frame.columns) == ["name", "class", "confidence", "box"]
    assert frame.to_dict("records") == result.summary(normalize=True, decimals=3)
    assert len(result) > 0
    nothing = result[result.boxes.conf > 2].to_df()
    assert list(nothing.columns) == list(frame.columns)
    assert len(nothing) == 0


def test_csv(result):
    heading, first, *_ = csv.reader(io.StringIO(result.to_csv(decimals=3)))
    expected = result.summary(decimals=3)[0]
    assert heading == ["name", "class", "confidence", "box"] == list(expected)
    assert first == [str(value) for value in expected.values()]


def test_an_array_has_no_path(model):
    (result,) = model(np.zeros((50, 100, 3), np.uint8))
    assert result.path == "image0.jpg"
    assert result.plot().shape == (50, 100, 3)


def test_a_classifier(classifier):
    (result,) = classifier("a.png")
    assert classifier.task == "classify"
    assert result.boxes is None
    probs = result.probs.cpu().numpy()
    assert probs.top1 == probs.top5[0] == int(np.argmax(probs.data))
    assert float(probs.top1conf) == probs.data.max()
    assert probs.top5conf.tolist() == sorted(probs.data.tolist())[::-1][:5]
    assert len(probs) == 6
    assert result.names[probs.top1] in result.verbose()
    assert result.summary()[0]["class"] == probs.top1
    drawn = result.plot()
    assert (drawn != result.orig_img).any()
    np.testing.assert_array_equal(result.plot(probs=False), result.orig_img)
    assert [each["class"] for each in result.summary()] == probs.top5
    assert [each["confidence"] for each in result.summary(decimals=9)] == pytest.approx(
        probs.top5conf.tolist()
    )
    assert len(result) == len(probs) == 6
    assert [line.split(",")[0] for line in result.to_csv().splitlines()] == [
        "name",
        *(result.names[each] for each in probs.top5),
    ]
    with pytest.raises(InputError, match="expected boxes"):
        result[0]


def test_the_score_of_the_best_class_is_a_single_number(classifier):
    (result,) = classifier("a.png")
    best = result.probs.top1conf
    assert best.shape == ()
    assert f"{best:.2f}" == f"{result.probs.data.max():.2f}"
    assert best.cpu().item() == float(best.numpy())


def test_save_txt_of_a_classifier_writes_the_best_five_classes(classifier, tmp_path):
    (result,) = classifier("a.png")
    probs = result.probs
    expected = [f"{probs.data[each]:.2f} {result.names[each]}" for each in probs.top5]
    result.save_txt(tmp_path / "best.txt", save_conf=True)
    assert (tmp_path / "best.txt").read_text().splitlines() == expected


def test_crops_have_the_margin_of_ultralytics(model, tmp_path):
    """Boxes grow by 2 % and 10 pixels, and their edges are cut to whole pixels."""
    (result,) = model("a.png", conf=0.01, iou=1.0, max_det=3)
    result.save_crop(tmp_path / "crops", "x.jpg")
    height, width = result.orig_shape
    expected = []
    for x, y, w, h in result.boxes.xywh.tolist():
        w, h = w * 1.02 + 10, h * 1.02 + 10
        left, top = max(0, int(x - w / 2)), max(0, int(y - h / 2))
        right, bottom = min(width, int(x + w / 2)), min(height, int(y + h / 2))
        expected.append((right - left, bottom - top))
    sizes = [read(str(each)).size for each in (tmp_path / "crops").rglob("*.jpg")]
    assert len(sizes) == 3
    assert sorted(sizes) == sorted(expected)


@pytest.mark.slow
@pytest.mark.parametrize("is_array", [True, False])
def test_what_is_drawn_on_the_picture_is_in_all_that_is_made_of_it(model, tmp_path, is_array):
    pixels = np.asarray(Image.open("a.png").convert("RGB"))[:, :, ::-1]
    (result,) = model(pixels if is_array else "a.png", conf=0.01, iou=1.0)
    assert result.orig_img is result.orig_img
    result.orig_img[:] = 0
    assert not result.plot(boxes=False).any()
    assert not result[:1].plot(boxes=False).any()
    result.save(tmp_path / "b.png", boxes=False)
    assert not np.asarray(Image.open(tmp_path / "b.png").convert("RGB")).any()
    for path in result.save_crop(tmp_path / "crops", "b.png"):
        assert not np.asarray(Image.open(path).convert("RGB")).any()
    assert pixels.any()
    result.orig_img = pixels
    np.testing.assert_array_equal(result.plot(boxes=False), pixels)


def test_renamed_classes_are_everywhere(model, tmp_path):
    (result,) = model("a.png", conf=0.01, iou=1.0)
    number = int(result.boxes.cls[0])
    result.names[number] = "EAN"
    assert "EAN" in result.verbose()
    assert result.summary()[0]["name"] == result[0].summary()[0]["name"] == "EAN"
    result.save_crop(tmp_path)
    assert (tmp_path / "EAN").is_dir()
    result.names = {number: "other"}
    assert "other" in result.to_json()
