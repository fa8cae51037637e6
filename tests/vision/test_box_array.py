"""Result.boxes is an array of edges with the attributes of other libraries."""

import copy
import pickle

import numpy as np
import pytest

from engine.vision.box_array import BoxArray, Values
from tests import needs
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


ATTRIBUTES = ("xyxy", "xyxyn", "xywh", "xywhn", "conf", "cls")
COPIES = {
    "copy": lambda boxes: boxes.copy(),
    "module": copy.copy,
    "deep": copy.deepcopy,
    "clone": lambda boxes: boxes.clone(),
    "float64": lambda boxes: boxes.astype(np.float64),
    "same": lambda boxes: boxes.astype(np.float32, copy=False),
} | {
    f"pickle {protocol}": lambda boxes, protocol=protocol: pickle.loads(
        pickle.dumps(boxes, protocol)
    )
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
}


@pytest.mark.parametrize("boxes", [BOXES, BOXES[::-1], BOXES[0], BOXES[:0]], ids=str)
@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_keep_the_attributes(boxes, copied):
    again = copied(copied(boxes))
    assert type(again) is BoxArray
    np.testing.assert_array_equal(again, boxes)
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(again, name), getattr(boxes, name))
    if boxes.ndim == 2:
        np.testing.assert_array_equal(again[::-1].conf, boxes.conf[::-1])


def test_copies_are_independent():
    for copied in (BOXES.copy(), copy.deepcopy(BOXES), BOXES.clone()):
        copied.conf[:] = copied.cls[:] = copied[:] = 77
    assert not (BOXES.conf == 77).any()
    assert not (BOXES.cls == 77).any()
    assert not (np.asarray(BOXES) == 77).any()


def test_copies_of_whole_numbers_have_the_attributes():
    for whole in (BOXES.astype(int), BOXES.int(), BOXES.long()):
        assert whole.xyxy.tolist() == whole.tolist() == np.asarray(BOXES).astype(int).tolist()
        assert whole.cls.tolist() == RESULT.class_ids.tolist()
    assert type(BOXES.astype(int, subok=False)) is np.ndarray


FOUR = RESULT[[0, 1, 2, 0]].boxes  # as many boxes as each has edges


@pytest.mark.parametrize(
    "made",
    [
        FOUR.T,
        FOUR.reshape(-1),
        FOUR.reshape(-1, 2, 2),
        FOUR.take([3, 1, 2, 0], axis=0),
        FOUR.argsort(axis=0),
        FOUR.sum(axis=0),
        FOUR + 1,
        FOUR[True],
        np.sort(FOUR, axis=0),
        np.partition(FOUR, 1, axis=0),
        np.roll(FOUR, 1, axis=0),
        FOUR.T.copy(),
        pickle.loads(pickle.dumps(FOUR.T)),
    ],
    ids=lambda made: type(made).__name__,
)
def test_other_arrays_claim_no_attributes(made):
    for name in ATTRIBUTES:
        with pytest.raises(AttributeError, match=rf"\b{name}\b") as caught:
            getattr(made, name)
        assert "_" not in str(caught.value)
    assert len(list(made)) == len(made)


def test_columns_of_boxes_can_be_unpacked():
    left, top, right, bottom = FOUR.T
    np.testing.assert_array_equal(np.stack([left, top, right, bottom], axis=1), FOUR)


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


def test_conversions_of_a_tensor():
    edges = BOXES.xyxy
    for same in (edges.to("cpu"), edges.to("cuda:0", non_blocking=True), edges.to(np.float32)):
        assert same is edges
    for kind in (np.int64, np.dtype("int64"), BOXES.cls.long()):
        assert edges.to(kind).dtype == edges.to("cpu", kind).dtype == np.int64
    assert edges.to(dtype=bool).dtype == bool
    assert type(edges.cpu().numpy(force=True)) is np.ndarray
    assert BOXES.to(int).conf.tolist() == BOXES.conf.tolist()


def test_types_of_torch():
    torch = needs.package("torch")
    assert BOXES.xyxy.to(torch.int64).dtype == np.int64
    assert BOXES.xyxy.to(torch.device("cpu"), torch.float16).dtype == np.float16


def test_sizes_of_a_tensor():
    assert BOXES.xyxy.dim() == 2
    assert BOXES.xyxy.numel() == 12
    assert BOXES.xyxy.view(-1).tolist() == BOXES.xyxy.view(12).tolist() == BOXES.ravel().tolist()
    assert BOXES.xyxy.view(2, -1).shape == (2, 6)
    assert BOXES.xyxy.view(np.ndarray).view(np.int32).dtype == np.int32
    left, _, _, bottom = BOXES.xyxy.unbind(1)
    assert (left.tolist(), bottom.tolist()) == (BOXES[:, 0].tolist(), BOXES[:, 3].tolist())


def test_different_values():
    classes = np.array([3, 1, 3]).view(Values)
    assert [int(each) for each in classes.unique()] == [1, 3]
    values, counts = classes.unique(return_counts=True)
    assert (values.cpu().tolist(), counts.cpu().tolist()) == ([1, 3], [1, 2])
    assert BOXES.xyxy[[0, 0]].view(Values).unique(dim=0).shape == (1, 4)


def test_sorting_as_a_tensor_and_as_numpy():
    scores = np.array([0.5, 0.9, 0.7], np.float32).view(Values)
    assert scores.argsort(descending=True).cpu().tolist() == [1, 2, 0]
    assert scores.argsort().tolist() == np.argsort(scores).tolist() == [0, 2, 1]
    values, order = scores.sort(descending=True)
    assert (values.tolist(), order.tolist()) == (sorted(scores.tolist(), reverse=True), [1, 2, 0])
    assert scores.tolist() == np.array([0.5, 0.9, 0.7], np.float32).tolist()
    assert scores.sort() is None
    assert scores.tolist() == sorted(scores.tolist())
    edges, _ = BOXES.sort(dim=0, descending=True)
    assert edges.tolist() == np.sort(np.asarray(BOXES), axis=0)[::-1].tolist()
    assert BOXES.conf.tolist() == RESULT.scores.tolist()
    square = np.array([[1, 5], [3, 2]]).view(Values)
    for options in ({"axis": 0}, {"dim": 0}):
        assert square.sort(descending=True, **options)[0].tolist() == [[3, 5], [1, 2]]
    assert square.sort(axis=None, descending=True)[0].tolist() == [5, 3, 2, 1]
    ties = np.array([1, 1, 2]).view(Values)
    assert ties.argsort(descending=True).tolist() == [2, 0, 1]
    assert ties.to("float64").dtype == ties.to(dtype="float64").dtype == np.float64


@pytest.mark.parametrize("name", ["conf", "cls", "xywhn", "xyxy", "xywh"])
def test_what_is_done_to_a_column_leaves_the_result(name):
    before = RESULT.to_dict()
    getattr(RESULT.boxes, name).sort(axis=0)
    getattr(RESULT.boxes, name)[:] = 0
    assert RESULT.to_dict() == before


def test_pickled_columns_keep_their_methods():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(BOXES.xyxy, protocol))
        assert type(again) is Values
        assert again.cpu().numpy().tolist() == BOXES.xyxy.tolist()
