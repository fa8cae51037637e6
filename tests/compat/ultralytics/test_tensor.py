"""The elements of a result's arrays have the methods of a tensor, and are NumPy's, too."""

import copy
import math
import pickle

import numpy as np
import pytest

from engine.compat.ultralytics import Boxes
from engine.compat.ultralytics.tensor import Tensor
from tests.vision.results import RESULT

BOXES = Boxes(RESULT.boxes, (50, 100), np.array([7, 8, 9]))
SINGLE = {
    "an index": BOXES.conf[0],
    "two indices": BOXES.xyxy[0, 0],
    "a row": BOXES[0].conf[0],
    "iteration": next(iter(BOXES.conf)),
    "arithmetic": BOXES.xyxy[0][2] - BOXES.xyxy[0][0],
    "reduction": BOXES.conf.max(),
    "identity": BOXES[0].id[0],
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_value_is_a_tensor_and_a_number(name):
    value = SINGLE[name]
    assert isinstance(value, np.ndarray)
    assert value.shape == value.cpu().numpy().shape == ()
    assert value.item() == value.tolist() == float(value) == value.detach().clone().cuda().item()
    assert int(value) == value.int().item() == value.long().item() == int(value.item())
    assert f"{value:.2f}" == f"{value.item():.2f}"
    assert round(value, 2) == round(value.item(), 2)
    assert math.ceil(value) == math.ceil(value.item())
    assert {value.item(): "found"}[value] == "found"
    for again in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert again.cpu() == value


def test_rows():
    for row, expected in zip(BOXES.xyxy, RESULT.xyxy.tolist(), strict=True):
        assert type(row.cpu()) is Tensor
        assert type(row.cpu().numpy()) is np.ndarray
        assert row.tolist() == pytest.approx(expected)
        left, top, right, bottom = map(int, row)
        assert row.int().tolist() == [left, top, right, bottom]
        assert [each.item() for each in row] == row.tolist()
        assert ((row[2] - row[0]) / 2).int().cpu().item() == (right - left) // 2
        picture = np.zeros((50, 100))
        x0, y0, x1, y1 = row.int()
        assert picture[y0:y1, x0:x1].size == (bottom - top) * (right - left)
    assert [each.tolist() for each in BOXES.data] == BOXES.data.tolist()


def test_selections_and_what_is_computed():
    chosen = BOXES.xyxy[BOXES.conf > 0.4]
    assert type(chosen) is Tensor
    assert len(chosen) == len(BOXES[BOXES.conf > 0.4]) == 2
    assert BOXES[BOXES.conf.argmax()].conf.item() == BOXES.conf.max().item()
    for row in BOXES.conf.argsort(descending=True):
        assert len(BOXES[row]) == 1
    values, order = BOXES.conf.sort(descending=True)
    assert [each.item() for each in values] == sorted(BOXES.conf.tolist(), reverse=True)
    assert order[0].cpu() == BOXES.conf.argmax()
    assert [(BOXES.cls == each).sum().item() for each in BOXES.cls.unique()] == [1, 2]
    assert type(BOXES.conf.sum().cpu()) is Tensor
    names = {0: "cat", 1: "dog"}
    assert [names[each] for each in BOXES.cls] == [names[each] for each in BOXES.cls.tolist()]


def test_shapes_and_types():
    edges = BOXES.xyxy
    assert edges.unsqueeze(0).shape == (1, 3, 4)
    assert BOXES.conf.unsqueeze(-1).contiguous().shape == (3, 1)
    assert edges[0][0].contiguous().shape == ()
    kinds = [edges.double().dtype, edges.half().dtype, edges.type(np.int32)[0].dtype]
    assert kinds == [np.float64, np.float16, np.int32]
    assert type(edges[0].type(int).cpu()) is Tensor


def test_arrays_without_one_value_are_no_keys():
    with pytest.raises((TypeError, ValueError)):
        hash(BOXES.conf)
