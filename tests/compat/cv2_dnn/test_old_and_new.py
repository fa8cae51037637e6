"""Items can be read as numbers and as rows of a column."""

import json

import numpy as np

from engine.compat.cv2_dnn.old_and_new import Items


def test_integers():
    items = Items.of([3, 1], np.int32)
    for first in (items[0], next(iter(items))):
        assert first == 3
        assert first[0] == 3
        assert first.item() == 3
        assert ["a", "b", "c", "d"][first] == "d"
        assert json.dumps(first) == "3"
    assert items.flatten().tolist() == items.tolist() == [3, 1]
    assert items[::-1].tolist() == [1, 3]


def test_floats():
    items = Items.of([[0.5], [0.25]], np.float32)
    assert items.shape == (2,)
    assert items[1][0] == items[1].item() == 0.25
    assert f"{items[0]:.2f}" == "0.50"
