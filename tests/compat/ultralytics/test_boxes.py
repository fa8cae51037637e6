"""Boxes have the attributes of ultralytics, as NumPy arrays."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from engine.compat.ultralytics import Boxes, Results
from engine.compat.ultralytics.boxes import rows_of
from engine.errors import InputError
from engine.vision.code import Code
from engine.vision.image import Picture
from tests.vision.results import RESULT

BOXES = Boxes(rows_of(RESULT), (50, 100))
PICTURE = Picture(np.zeros((50, 100, 3), np.uint8))
CHANGES = {
    "edges": lambda boxes: boxes.xyxy.__setitem__((0, slice(None, None, 2)), [25, 65]),
    "edges in place": lambda boxes: _move(boxes.xyxy),
    "data": lambda boxes: _move(boxes.data),
    "an array of NumPy": lambda boxes: _move(boxes.xyxy.cpu().numpy()),
    "boxes of NumPy": lambda boxes: _move(boxes.numpy().data),
    "a box": lambda boxes: _move(boxes[0].xyxy),
    "boxes in a loop": lambda boxes: [_move(each.xyxy) for each in list(boxes)[:1]],
    "a slice": lambda boxes: _move(boxes[:2].xyxy),
}


def _move(edges):
    edges[:1, [0, 2]] += 5


@pytest.fixture
def result():
    pixels = np.full((50, 100, 3), 128, np.uint8)
    return Results(pixels, "street.jpg", RESULT.names, rows_of(RESULT))


def test_forms():
    np.testing.assert_allclose(BOXES.xyxy, RESULT.xyxy)
    np.testing.assert_allclose(BOXES.xywh, RESULT.xywh)
    np.testing.assert_allclose(BOXES.xyxyn, RESULT.xyxyn)
    np.testing.assert_allclose(BOXES.xywhn, RESULT.xywhn)
    assert BOXES.shape == BOXES.data.shape == (3, 6)
    left, top, right, bottom, score, number = BOXES.data.tolist()[0]
    assert (left, top, right, bottom) == pytest.approx((20, 10, 60, 30))
    assert (score, number) == (pytest.approx(0.9), 1)
    assert BOXES.id is None
    assert not BOXES.is_track


def test_rows():
    assert len(BOXES) == 3
    for row, box in enumerate(BOXES):
        assert len(box) == 1
        assert int(box.cls) == int(box.cls[0]) == RESULT.class_ids[row]
        assert float(box.conf) == box.conf.item() == RESULT.scores[row]
        assert box.xyxy.cpu().numpy().astype(int).shape == (1, 4)
        assert box.xywh[0].tolist() == pytest.approx(RESULT.xywh[row])
    assert len(BOXES[1:]) == 2
    assert BOXES[-1].cls.tolist() == [1]
    assert len(BOXES[BOXES.conf > 0.4]) == 2
    with pytest.raises(IndexError):
        BOXES[3]


def test_methods_of_tensors():
    assert BOXES.cpu().to("cuda").cuda() is BOXES
    assert BOXES.to("cpu", np.float32).to(dtype="float32", non_blocking=True) is BOXES
    assert repr(BOXES) == "<Boxes: 3 in 100 x 50>"


@pytest.mark.parametrize("targets", [(np.float16,), ("cpu", np.float16), (BOXES.conf.half(),)])
def test_another_type_is_refused(result, targets):
    for each in (BOXES, result):
        with pytest.raises(InputError) as refused:
            each.to(*targets)
        assert str(refused.value) == (
            "to(): expected a device, got float16: boxes stay float32. "
            "Convert boxes.data or another array"
        )


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_place_is_in_everything_that_is_made_of_the_boxes(result, name, tmp_path):
    before = result.plot()
    CHANGES[name](result.boxes)
    boxes = result.boxes
    np.testing.assert_allclose(boxes.xyxy[0], [25, 10, 65, 30], rtol=1e-6)
    np.testing.assert_allclose(boxes.xyxy[1:], RESULT.xyxy[1:], rtol=1e-6)
    np.testing.assert_allclose(boxes.data[:, :4], boxes.xyxy)
    np.testing.assert_allclose(boxes.xywh[0], [45, 20, 40, 20], rtol=1e-6)
    np.testing.assert_allclose(boxes.xyxyn[0], [0.25, 0.2, 0.65, 0.6], rtol=1e-6)
    np.testing.assert_allclose(boxes.xywhn[0], [0.45, 0.4, 0.4, 0.4], rtol=1e-6)
    moved = {"x1": 25.0, "y1": 10.0, "x2": 65.0, "y2": 30.0}
    assert result.summary(decimals=3)[0]["box"] == result[0].summary(decimals=3)[0]["box"] == moved
    result.save_txt(tmp_path / "labels.txt")
    first, *_ = (tmp_path / "labels.txt").read_text().splitlines()
    assert first == "1 0.450000 0.400000 0.400000 0.400000"
    assert result.result.xyxy[0].tolist() == pytest.approx([25, 10, 65, 30])
    assert not np.array_equal(result.plot(), before)


def test_scores_classes_and_identities_change_in_place(result):
    result.boxes.conf[0], result.boxes.cls[0] = 0.125, 0
    assert result.verbose() == "2 cats, 1 dog, "
    assert (result.summary()[0]["confidence"], result.summary()[0]["class"]) == (0.125, 0)
    assert [each.boxes.conf.item() for each in result] == [0.125, 0.5, 0.25]
    result.numpy().boxes.conf[:] = 1
    assert result.boxes.conf.tolist() == [1, 1, 1]
    result.boxes = Boxes(np.insert(rows_of(RESULT), 4, [7, 8, 9], axis=1), (50, 100))
    result.boxes.id[1] = 5
    assert [each["track_id"] for each in result.summary()] == [7, 5, 9]
    assert result[1].boxes.id.tolist() == [5]


@pytest.mark.parametrize("made", [Results.numpy, copy])
def test_another_view_of_a_result_shares_boxes_that_were_not_read_before(made):
    result = Results.of(RESULT)
    made(result).boxes.cls[:] = 0
    assert result.verbose() == "3 cats, "


@pytest.mark.parametrize("count", [0, 2, 5])
@pytest.mark.parametrize("made", [lambda result: result, Results.numpy])
def test_rows_may_be_replaced_by_another_number_of_them(count, made):
    codes = tuple(Code(text, "QR Code", (), text.encode()) for text in "ABC")
    result = made(Results.of(replace(RESULT, codes=codes), PICTURE))
    rows = np.resize(rows_of(RESULT)[::-1], (count, 6))
    result.boxes.data = rows
    np.testing.assert_array_equal(result.boxes.data, rows)
    assert len(result) == len(result.boxes) == len(list(result)) == len(result.summary()) == count
    assert result.result.codes is None
    assert result.plot().shape == (50, 100, 3)


@pytest.mark.parametrize("rows", [np.zeros((2, 5)), [[0, 0, 1, 1, 1, -1]], "rows", [None]])
def test_rows_that_are_no_boxes_are_refused(result, rows):
    with pytest.raises(InputError, match=r"^boxes: expected"):
        result.boxes.data = rows
    assert len(result) == 3


def test_an_index_may_be_a_tuple_of_one(result):
    which = np.where(result.boxes.conf > 0.4)
    assert len(result[which]) == len(result.boxes[which]) == 2
    assert result[(slice(1, 3),)].boxes.conf.tolist() == result.boxes.conf[1:].tolist()
    assert result[(1,)].boxes.conf.tolist() == [0.5]
    with pytest.raises(InputError, match=r"^boxes: expected rows"):  # one number, as in NumPy
        result[(0, 1)]


def test_chosen_boxes_and_copies_have_rows_of_their_own(result):
    for each in (result.boxes[result.boxes.conf > 0.4], result.boxes[[0, 2]]):
        each.data[:] = 0
    edges = result.boxes.xyxy.clone()
    edges += 1
    np.testing.assert_allclose(result.boxes.data, rows_of(RESULT), rtol=1e-6)


def test_a_change_to_what_is_no_class_is_refused(result):
    result.boxes.cls[0] = -1
    for use in (result.summary, result.verbose, result.plot):
        with pytest.raises(InputError, match=r"^boxes: expected the number of a class, 0 or more"):
            use()


def test_sorting_scores_leaves_the_boxes_in_their_order(result):
    values, order = result.boxes.conf.sort()
    assert (values.tolist(), order.tolist()) == ([0.25, 0.5, pytest.approx(0.9)], [2, 1, 0])
    assert np.sort(result.boxes.conf).tolist() == values.tolist()
    assert np.unique(result.boxes.cls).tolist() == [0, 1]
    np.testing.assert_allclose(result.boxes.data, rows_of(RESULT), rtol=1e-6)


def test_edges_that_are_set_in_place_come_out_exactly():
    pixels = np.zeros((2160, 3840, 3), np.uint8)
    rows = [[21.6, 19.7, 1002.3, 999.9, 0.9, 0], [10.25, 20.5, 1919.3, 800.1, 0.8, 1]]
    result = Results(pixels, "street.jpg", RESULT.names, np.array(rows, np.float32))
    before = [each["box"] for each in result.summary()]
    result.boxes.xyxy[0] = [22, 20, 1002, 1000]
    first, second = (each["box"] for each in result.summary())
    assert first == {"x1": 22, "y1": 20, "x2": 1002, "y2": 1000}
    assert second == before[1]


def test_boxes_that_change_places_keep_no_texts_of_others():
    codes = tuple(Code(text, "QR Code", (), text.encode()) for text in "ABC")
    result = Results.of(replace(RESULT, codes=codes), PICTURE)
    rows = result.boxes.data
    rows[:2] = rows[1::-1].copy()
    assert [each and each.text for each in result.result.codes] == [None, None, "C"]


def test_a_loop_does_not_look_for_changes_at_each_box(result, monkeypatch):
    made = []
    monkeypatch.setattr(Results, "_current", lambda self: made.append(1) or self._result)
    assert len(list(result)) == 3
    assert len(made) < 3  # not once for each box
