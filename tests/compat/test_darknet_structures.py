"""The structures of darknet.py: their numbers are read and written as through ctypes."""

import json

import numpy as np
import pytest

from engine.compat import darknet
from engine.errors import InputError

PROB = np.array([[0.9, 0.0, 0.25], [0.0, 0.6, 0.5]], np.float32)


@pytest.fixture
def found():
    boxes = np.array([[50, 40, 30, 20], [10, 20, 5, 7]], np.float32)
    return darknet.Detections(boxes, PROB.copy(), np.array([0.9, 0.75], np.float32))


def image():
    made = darknet.make_image(2, 2, 3)
    darknet.copy_image_from_bytes(made, bytes(range(0, 240, 20)))
    return made


def test_numbers_are_those_of_python(found):
    for row in (found[0].prob, image().data, darknet.letterbox_image(image(), 4, 4).data):
        for each in (row[0], row[-1], row[np.int64(1)], next(iter(row)), max(row), row[:3][1]):
            assert type(each) is float
        assert type(row[:3]) is list
        assert row[:2] == [row[0], row[1]]
        assert list(row) == row[:] == row.tolist()
        assert json.loads(json.dumps([row[0], row[:2]])) == [row[0], row[:2]]
    assert found[0].prob[:3].index(max(found[0].prob[:3])) == 0
    with pytest.raises(IndexError):
        found[0].prob[3]


def test_numbers_are_written_where_they_are(found):
    found[1].prob[0] = 0.125
    found[1].prob[1:] = [0, 0]
    np.testing.assert_array_equal(found.prob, [PROB[0], [0.125, 0, 0]])
    picture = image()
    picture.data[:4] = [1, 2, 3, 4]
    picture.data *= 2
    assert picture.data[:4] == [2, 4, 6, 8]
    assert picture.numbers(12)[3] == 8


def test_numbers_are_an_array_to_numpy(found):
    prob = found[1].prob
    assert prob.argmax() == 1
    for value in (prob * 2, prob > 0, prob[[0, 1]], prob[prob > 0], np.sort(prob), np.diff(prob)):
        assert type(value) is np.ndarray
    assert np.median(prob) == 0.5
    assert np.concatenate([prob, found[0].prob]).shape == (6,)
    planes = image().data.reshape(3, 4)
    assert type(planes[0]) is np.ndarray
    assert [plane.shape for plane in planes] == [(4,)] * 3
    assert np.shares_memory(np.asarray(prob), found.prob)


def test_the_inlined_loop_of_scripts_can_be_written_as_json(found):
    names = ["cat", "dog", "cow"]
    result = []
    for row in range(len(found)):
        for number, name in enumerate(names):
            if found[row].prob[number] > 0:
                box = found[row].bbox
                result.append((name, found[row].prob[number], (box.x, box.y, box.w, box.h)))
    assert len(json.loads(json.dumps(result))) == 4
    assert result == darknet.remove_negatives(found, names, 2)


def test_what_is_written_to_a_detection_is_written_to_all(found):
    first, held = found[0], found[0].bbox
    first.bbox.x = 51
    first.bbox.w /= 2
    first.objectness = 0.5
    assert (held.x, held.w, found[0].objectness) == (51, 15, 0.5)
    found[1].bbox = darknet.BOX(1, 2, 3, 4)
    found[1].bbox[1] += 1
    expected = [[51, 40, 15, 20], [1, 3, 3, 4]]
    assert found.xywh.tolist() == expected
    boxes = [box for *_, box in darknet.remove_negatives(found, ["cat", "dog", "cow"], 2)]
    assert boxes == [(*expected[0],)] * 2 + [(*expected[1],)] * 2
    with pytest.raises(AttributeError):
        first.bobx = None


def test_a_box_is_four_numbers():
    box = darknet.BOX(1, 2, h=4)
    box.y = 2.5
    assert (box.x, box.y, box.w, box.h) == (*box,) == tuple(box[:]) == (1, 2.5, 0, 4)
    assert {type(each) for each in (box.x, box[1], *box)} == {float}
    assert box == (1, 2.5, 0, 4) == box
    assert box != darknet.BOX()
    assert box not in (None, 3, "dog")
    assert repr(box) == "BOX(x=1.0, y=2.5, w=0.0, h=4.0)"
    assert darknet.bbox2points(darknet.BOX(10, 10, 4, 6)) == (8, 7, 12, 13)


def test_a_detection_of_its_own():
    made, other = darknet.DETECTION(), darknet.DETECTION(darknet.BOX(1, 2, 3, 4), PROB[0], 0.75)
    made.bbox.x, made.objectness = 5, 0.25
    assert (made.bbox.x, made.objectness, made.classes, made.best_class_idx) == (5, 0.25, 0, -1)
    assert (other.bbox.h, other.objectness, other.classes, other.best_class_idx) == (4, 0.75, 3, 0)
    assert repr(other).startswith("DETECTION(bbox=BOX(x=1.0, ")


def test_fields_that_detection_heads_leave_empty(found):
    first = found[0]
    assert (first.classes, first.sort_class, first.best_class_idx) == (3, 0, 0)
    assert (first.mask, first.embeddings) == (None, None)
    assert (first.embedding_size, first.sim, first.track_id) == (0, 0.0, 0)
    for name in ("uc", "points"):
        with pytest.raises(
            AttributeError, match=rf"^{name}: .*engine.compat.darknet has no such attribute"
        ):
            getattr(first, name)


def test_suppression_says_what_it_sorted_by(found):
    darknet.do_nms_sort(found, 2, 3, 0.45)
    assert [each.sort_class for each in found] == [2, 2]
    darknet.do_nms_obj(found, 1, 3, 0.45)
    assert [each.sort_class for each in found] == [-1, 2]
    found[1].sort_class = 1
    assert found[1].sort_class == 1


def test_an_array_becomes_an_image():
    pixels = np.arange(0, 240, 20, np.uint8).reshape(2, 2, 3)
    made, values = darknet.array_to_image(pixels)
    expected = image()
    assert (made.w, made.h, made.c) == (2, 2, 3)
    assert values.shape == (12,)
    assert made.data[:12] == values.tolist() == expected.data.tolist()
    darknet.rgbgr_image(made)
    assert made.data[:4] == expected.data[8:12]
    with pytest.raises(InputError, match=r"^array: expected \(height, width, channels\), got"):
        darknet.array_to_image(pixels[0])
