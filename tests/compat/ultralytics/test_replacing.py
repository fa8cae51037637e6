"""Programs replace what a result holds, and make results of their own boxes and pictures."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

from engine.compat.ultralytics import Boxes, Probs, Results
from engine.errors import ImageError, InputError

LOW = {"conf": 0.01, "iou": 1.0}
ROWS = np.array([[10, 20, 30, 40, 0.75, 1], [-5, 6, 120, 28, 0.5, 2]], np.float32)


@pytest.fixture
def result(model):
    return model("a.png", **LOW)[0]


def test_boxes_of_rows():
    for rows in (ROWS, ROWS.tolist()):
        boxes = Boxes(rows, (50, 100))
        np.testing.assert_array_equal(boxes.data, ROWS)
        np.testing.assert_allclose(boxes.xywhn[0], [0.2, 0.6, 0.2, 0.4], rtol=1e-6)
        np.testing.assert_array_equal(boxes[1].data, ROWS[1:])
    assert Boxes(ROWS[0], (50, 100)).shape == (1, 6)
    tracked = Boxes(np.insert(ROWS, 4, [7, 9], axis=1), (50, 100))
    assert tracked.is_track
    assert tracked.id.int().tolist() == [7, 9]
    assert tracked.conf.tolist() == [0.75, 0.5]
    with pytest.raises(InputError, match=r"^boxes: expected rows of 6 or 7 numbers, got the shape"):
        Boxes(ROWS[:, :5], (50, 100))


def test_boxes_are_assigned(result, tmp_path):
    assert result.boxes is result.boxes
    kept = result.boxes[result.boxes.cls == 1]
    result.boxes = kept
    assert result.boxes is kept
    assert len(result) == len(kept) == len(result.summary()) == len(list(result))
    assert set(result.boxes.cls.tolist()) == {1}
    assert result.verbose() == f"{len(kept)} dog{'s' * (len(kept) > 1)}, "
    result.save_txt(tmp_path / "a.txt")
    assert len((tmp_path / "a.txt").read_text().splitlines()) == len(kept)
    result.boxes = Boxes(ROWS, result.orig_shape)
    np.testing.assert_array_equal(result.boxes.data, ROWS)
    assert [int(each.boxes.xyxy[0, 0]) for each in result] == [10, -5]
    assert result.result.class_ids.tolist() == [1, 2]
    result.boxes = None
    assert result.boxes is None
    assert len(result) == 0
    assert (result.verbose(), result.summary()) == ("(no detections), ", [])
    np.testing.assert_array_equal(result.plot(), result.orig_img)
    with pytest.raises(InputError, match=r"^boxes: expected Boxes or None, .*update\(boxes=…\)"):
        result.boxes = ROWS


def test_update_cuts_boxes_at_the_edges(result):
    result.update(boxes=ROWS)
    expected = ROWS.copy()
    expected[1, :4] = [0, 6, 100, 28]
    np.testing.assert_array_equal(result.boxes.data, expected)
    assert [each["box"]["x2"] for each in result.summary()] == [30, 100]
    result.update(np.insert(ROWS, 4, 8, axis=1))
    assert [each["track_id"] for each in result.summary()] == [8, 8]
    assert (result.plot() != result.orig_img).any()
    result.update()
    assert len(result) == 2
    for name in ("masks", "obb", "keypoints", "semantic_mask", "depth"):
        with pytest.raises(InputError, match=r"^update\(\): expected boxes or probs"):
            result.update(**{name: ROWS})


def test_new_has_the_picture_alone(result):
    result.orig_img[:] = 7
    result.names[0] = "lion"
    made = result.new()
    assert (made.boxes, made.probs, len(made)) == (None, None, 0)
    assert (made.path, made.names, made.speed) == (result.path, result.names, result.speed)
    np.testing.assert_array_equal(made.orig_img, result.orig_img)
    made.update(boxes=ROWS[:1])
    assert len(made) == 1
    assert len(result) > 1


def test_attributes_are_assigned(result):
    result.path = "other/b.png"
    result.speed = {"inference": 1.5}
    assert result.save() == "results_b.png"
    assert result[0].path == "other/b.png"
    assert result[0].speed == {"inference": 1.5}
    result.speed["inference"] = 2
    assert result.speed["inference"] == 2


def test_probabilities_of_a_classifier(classifier):
    (result,) = classifier("a.png")
    made = result.new()
    assert (made.boxes, made.probs, len(made)) == (None, None, 0)
    scores = np.arange(6) / 15
    made.update(probs=scores)
    assert (made.probs.top1, len(made)) == (5, 6)
    made.probs = Probs(np.array([0.9, 0.1], np.float32))
    assert made.verbose().startswith(f"{result.names[0]} 0.90")
    made.update(boxes=ROWS)
    assert (made.probs, len(made.boxes)) == (None, 2)
    with pytest.raises(InputError, match=r"^probs: expected one number for each class, got"):
        made.update(probs=ROWS)


def test_boxes_of_another_picture_keep_their_pixels(result):
    rows = ROWS.copy()
    rows[:, :4] = [[30, 10, 60, 40], [5, 5, 20, 45]]
    result.boxes = Boxes(rows, (40, 40))  # of a part of the picture, moved to their place
    np.testing.assert_allclose(result.boxes.xyxy, rows[:, :4], atol=1e-5)
    found = [[each["box"][name] for name in ("x1", "y1", "x2", "y2")] for each in result.summary()]
    np.testing.assert_allclose(found, rows[:, :4], atol=1e-4)
    np.testing.assert_allclose(result[1].result.xyxy, rows[1:, :4], atol=1e-4)


@pytest.mark.parametrize("number", [-1, np.nan, np.inf])
def test_rows_without_a_class_are_refused(number):
    rows = ROWS.copy()
    rows[1, 5] = number
    with pytest.raises(InputError, match=r"^boxes: expected the number of a class, 0 or more"):
        Boxes(rows, (50, 100))


def test_boxes_take_the_shape_of_an_array():
    assert Boxes(ROWS, (50, 100, 3)).xywhn.tolist() == Boxes(ROWS, (50, 100)).xywhn.tolist()


@pytest.mark.parametrize("as_list", [False, True])
def test_a_class_of_another_network_has_its_name(result, tmp_path, as_list):
    names = {**result.names, 3: "plate"}
    result.names = list(names.values()) if as_list else names
    rows = ROWS[:1].copy()
    rows[0, 5] = 3
    result.update(boxes=rows)
    assert result.verbose() == "1 plate, "
    assert result.summary()[0]["name"] == "plate"
    assert {each.parent.name for each in result.save_crop(tmp_path)} == {"plate"}
    rows[0, 5] = 7
    result.update(boxes=rows)
    assert result.summary()[0]["name"] == "7"


def test_what_is_drawn_on_a_part_is_in_the_whole(model):
    for parts in (iter, lambda result: [result.new()]):
        result = model("a.png", **LOW)[0]
        for part in parts(result):
            part.orig_img[:] = 0
        assert not result.plot(boxes=False).any()


def test_boxes_stay_at_their_pixels_on_a_picture_of_another_size(result, tmp_path):
    result.update(boxes=[[10, 20, 30, 40, 0.75, 1]])
    small, large = (
        result.plot(line_width=1, labels=False, conf=False),
        np.zeros((100, 200, 3), np.uint8),
    )
    changed = np.argwhere((small != result.orig_img).any(axis=2))
    result.orig_img = large
    drawn = np.argwhere(result.plot(line_width=1, labels=False, conf=False).any(axis=2))
    np.testing.assert_array_equal([drawn.min(0), drawn.max(0)], [changed.min(0), changed.max(0)])
    assert len(result.save_crop(tmp_path)) == 1


def test_plot_takes_any_true_or_false_value(result):
    np.testing.assert_array_equal(result.plot(conf=0.5), result.plot(conf=True))
    np.testing.assert_array_equal(result.plot(labels=None), result.plot(labels=False))


def test_results_of_numpy_have_plain_arrays(result):
    result.update(boxes=ROWS)
    plain = result.cpu().numpy()
    assert type(plain.boxes.xyxy) is type(plain[0].boxes.conf) is np.ndarray
    assert type(result.boxes.xyxy) is not np.ndarray


def test_probabilities_of_numpy_are_plain_arrays():
    probs = Probs(np.array([0.25, 0.75], np.float32)).numpy()
    assert type(probs.data) is type(probs.top5conf) is np.ndarray
    assert type(probs.top1conf) is np.float32


@pytest.mark.parametrize("names", [{"0": "a"}, {10**9: "x"}])
def test_names_of_no_class_change_nothing(result, names):
    expected = result.verbose()
    result.names = {**result.names, **names}
    assert result.verbose() == expected


NAMES = {0: "cat", 1: "dog", 2: "car"}


@pytest.fixture
def frame():
    return np.random.default_rng(3).integers(0, 256, (50, 100, 3), np.uint8)


def test_a_program_makes_results(frame, tmp_path):
    made = Results(orig_img=frame, path="a.jpg", names=NAMES, boxes=ROWS)
    assert (len(made), made.path, made.names, made.probs) == (2, "a.jpg", NAMES, None)
    assert made.orig_img is frame
    assert made.orig_shape == (50, 100)
    assert made.speed == {"preprocess": None, "inference": None, "postprocess": None}
    np.testing.assert_array_equal(made.boxes.data, ROWS)
    assert made.verbose() == "1 dog, 1 car, "
    assert [each["name"] for each in made.summary()] == ["dog", "car"]
    assert made[made.boxes.conf > 0.6].boxes.cls.tolist() == [1]
    drawn = made.plot()
    assert (drawn != frame).any()
    frame[:] = 0
    assert (made.plot() != drawn).any()
    assert {each.parent.name for each in made.save_crop(tmp_path)} == {"dog", "car"}
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        np.testing.assert_array_equal(again.boxes.data, ROWS)
        np.testing.assert_array_equal(again.orig_img, frame)


def test_a_program_makes_results_without_boxes(frame):
    made = Results(frame, "a.jpg", NAMES, speed={"inference": 1.5})
    assert (made.boxes, made.probs, len(made)) == (None, None, 0)
    assert made.speed == {"inference": 1.5}
    np.testing.assert_array_equal(made.plot(), frame)
    made.update(boxes=ROWS)
    assert made.verbose() == "1 dog, 1 car, "
    assert made.new().boxes is None
    assert len(Results(frame, "a.jpg", NAMES, boxes=ROWS[:0]).boxes) == 0


def test_a_program_makes_results_of_a_classifier(frame):
    made = Results(frame, "a.jpg", NAMES, probs=np.array([0.1, 0.7, 0.2], np.float32))
    assert (made.probs.top1, made.boxes, len(made)) == (1, None, 3)
    assert made.verbose() == "dog 0.70, car 0.20, cat 0.10, "
    probs = Probs(probs=np.array([0.1, 0.7], np.float32), orig_shape=(50, 100))
    assert (probs.shape, probs.orig_shape) == ((2,), (50, 100))


@pytest.mark.parametrize("names", [["cat", "dog", "car"], {2: "car"}, {}])
@pytest.mark.parametrize("path", ["", None, Path("a.jpg")])
def test_names_and_paths_of_other_kinds(frame, names, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Results(frame, path=path, names=names, boxes=ROWS)
    assert made.path == ("a.jpg" if path else "image0.jpg")
    assert made.summary()[1]["name"] == ("car" if names else "2")
    assert made.save() == f"results_{made.path}"


def test_what_results_cannot_be_made_of(frame):
    with pytest.raises(ImageError, match=r"expected a picture, got None. Could imread\(\)"):
        Results(None, "a.jpg", NAMES)
    with pytest.raises(InputError, match=r"^Results\(\): expected boxes or probs"):
        Results(frame, "a.jpg", NAMES, masks=frame)
    with pytest.raises(InputError, match=r"^names: expected the name of each class, got 3"):
        Results(frame, "a.jpg", 3)
