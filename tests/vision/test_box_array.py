"""Result.boxes is an array of edges with the attributes of other libraries."""

import pickle

import numpy as np
import pytest

from engine.vision.box_array import BoxArray, Values
from tests.vision.results import RESULT

BOXES = RESULT.boxes


def test_the_array_is_the_edges_in_pixels():
    assert isinstance(BOXES, np.ndarray)
    assert BOXES.dtype == np.float32
    np.testing.assert_allclose(BOXES, [[20, 10, 60, 30], [0, 0, 20, 20], [50, 20, 100, 50]])
    np.testing.assert_array_equal(BOXES.xyxy, BOXES)


def test_other_forms():
    np.testing.assert_allclose(BOXES.xywh, [[40, 20, 40, 20], [10, 10, 20, 20], [75, 35, 50, 30]])
    np.testing.assert_allclose(BOXES.xywhn, RESULT.xywhn)
    np.testing.assert_allclose(BOXES.xyxyn, BOXES / [100, 50, 100, 50], atol=1e-6)
    assert BOXES.conf.tolist() == RESULT.scores.tolist()
    assert BOXES.cls.tolist() == RESULT.class_ids.tolist()


def test_rows_have_them_too():
    for row, box in enumerate(BOXES):
        assert box.shape == (4,)
        assert box.xyxy.shape == box.xywh.shape == (1, 4)
        assert box.xyxy[0].tolist() == BOXES[row].tolist()
        assert int(box.cls) == RESULT.class_ids[row]
        assert float(box.conf) == RESULT.scores[row]
        left, top, right, bottom = box.tolist()
        assert (left, top) < (right, bottom)


@pytest.mark.parametrize(
    "which", [slice(1, None), [2, 0], np.array([True, False, True]), np.array([1])]
)
def test_selected_rows(which):
    chosen = BOXES[which]
    assert isinstance(chosen, BoxArray)
    np.testing.assert_array_equal(chosen.conf, RESULT.scores[which])
    np.testing.assert_allclose(chosen.xywhn, RESULT.xywhn[which])
    assert chosen.cls.shape == (len(chosen),)


def test_parts_of_boxes_and_sums_are_no_boxes():
    for plain in (BOXES[:, 0], BOXES[0, 1:]):
        assert type(plain) is np.ndarray
    for computed in (BOXES + 1, BOXES.sum(axis=0), BOXES > 3):
        assert type(computed) is Values
    assert isinstance(BOXES.sum(), np.float32)
    assert isinstance(BOXES[0, 0], np.float32)
    assert isinstance(BOXES[0][0], np.float32)
    assert type(np.concatenate([np.empty((0, 4), np.float32), BOXES])) is np.ndarray


def test_methods_of_tensors():
    assert type(BOXES.xyxy.cpu().numpy()) is np.ndarray
    assert BOXES.conf.cpu().numpy().tolist() == RESULT.scores.tolist()
    assert (BOXES.xyxy[0] / 2).round().int().tolist() == np.rint(BOXES[0] / 2).tolist()
    assert (BOXES.cls == BOXES.cls[0]).cpu().numpy().all() == (len({*BOXES.cls.tolist()}) == 1)
    with pytest.raises(ValueError, match="size 1"):
        int(BOXES.cls)


def test_it_pickles_as_a_plain_array():
    again = pickle.loads(pickle.dumps(BOXES))
    assert type(again) is np.ndarray
    np.testing.assert_array_equal(again, BOXES)


def test_no_boxes():
    empty = RESULT[:0].boxes
    assert empty.shape == empty.xywh.shape == empty.xyxyn.shape == (0, 4)
    assert list(empty) == []
    assert len(empty.conf) == 0


def test_copies_of_other_types_are_those_of_a_tensor():
    values = BOXES.xyxy + 0.75
    values = values.view(type(BOXES.xyxy))
    assert values.int().tolist() == np.asarray(values).astype(int).tolist()
    kinds = [values.int().dtype, values.long().dtype, values.float().dtype, values.clone().dtype]
    assert kinds == [np.int32, np.int64, np.float32, values.dtype]
    assert BOXES.cls.int().cpu().tolist() == RESULT.class_ids.tolist()
    assert BOXES.int().cpu().tolist() == np.asarray(BOXES).astype(int).tolist()
    assert values.detach() is values
    copy = values.clone()
    copy[:] = 0
    assert values.min() > 0
