"""Boxes have the attributes of ultralytics, as NumPy arrays."""

import numpy as np
import pytest

from engine.compat.ultralytics import Boxes
from tests.vision.results import RESULT

BOXES = Boxes(RESULT.boxes, (50, 100))


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
        assert box.xywh[0].tolist() == RESULT.xywh[row].tolist()
    assert len(BOXES[1:]) == 2
    assert BOXES[-1].cls.tolist() == [1]
    assert len(BOXES[BOXES.conf > 0.4]) == 2
    with pytest.raises(IndexError):
        BOXES[3]


def test_methods_of_tensors():
    assert BOXES.cpu().to("cuda").cuda() is BOXES
    assert repr(BOXES) == "<Boxes: 3 in 100 x 50>"
