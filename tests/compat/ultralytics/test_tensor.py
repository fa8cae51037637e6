"""The elements of a result's arrays have the methods of a tensor, and are NumPy's, too."""

import copy
import math
import pickle

import numpy as np
import pytest

from engine.compat.ultralytics import Boxes
from engine.compat.ultralytics.boxes import rows_of
from engine.compat.ultralytics.tensor import Tensor, tensor
from tests.vision.results import RESULT

BOXES = Boxes(np.insert(rows_of(RESULT), 4, [7, 8, 9], axis=1), (50, 100))
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
    assert isinstance(value, np.generic)
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
    assert BOXES.conf.sum().cpu() == np.asarray(BOXES.conf).sum()
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


@pytest.mark.parametrize(
    "boxes",
    [BOXES.numpy(), BOXES.cpu().numpy()[1:], BOXES.numpy()[0]],
    ids=["all", "a slice", "one"],
)
def test_boxes_of_numpy_have_plain_arrays(boxes):
    for name in ("xyxy", "xywh", "xyxyn", "xywhn", "conf", "cls", "id", "data"):
        assert type(getattr(boxes, name)) is np.ndarray, name
    assert type(boxes.cls[0]) is np.float32
    assert type(boxes.xyxy[0].astype(int)[0]) is np.int64


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int32, np.uint8])
def test_elements_are_numbers_of_numpy(kind):
    first, second, *_ = tensor(np.array([3, 4, 5], kind))
    assert isinstance(first, kind)
    assert np.array([first, second]).dtype == kind
    assert [7, 8, 9, 10, 11][int(first)] == 10
    assert isinstance((first + second).cpu(), kind)
    assert (second / first).item() == pytest.approx(4 / 3)
    assert type(first.numpy()) is kind
    assert type(first + tensor(np.array([3, 4, 5], kind))) is Tensor


def test_opencv_takes_elements_as_coordinates():
    cv2 = pytest.importorskip("cv2")
    drawn, expected = np.zeros((50, 100, 3), np.uint8), np.zeros((50, 100, 3), np.uint8)
    for row in BOXES.xyxy.astype(int):
        cv2.rectangle(drawn, row[:2], row[2:], (255, 255, 255), 2)
        cv2.circle(drawn, (row[0], row[1]), row[0], (0, 0, 255))
    for row in BOXES.xyxy.tolist():
        left, top, right, bottom = map(int, row)
        cv2.rectangle(expected, (left, top), (right, bottom), (255, 255, 255), 2)
        cv2.circle(expected, (left, top), left, (0, 0, 255))
    np.testing.assert_array_equal(drawn, expected)


# The results of torch 2.13 for these rows.
ROWS = np.array([[1, 2, 3, 4], [5, 6, 7, 9]], np.float32)
OF_TORCH = [
    (lambda x: x.std(dim=0, correction=0), [2.0, 2.0, 2.0, 2.5]),
    (lambda x: x.std(dim=0, correction=1), [8**0.5] * 3 + [12.5**0.5]),
    (lambda x: x.max(dim=1, keepdim=True).values, [[4], [9]]),
    (lambda x: x.prod(dim=1), [24, 1890]),
    (lambda x: x.prod(1, keepdim=True), [[24], [1890]]),
    (lambda x: x.cumsum(dim=0), [[1, 2, 3, 4], [6, 8, 10, 13]]),
    (lambda x: x.cumsum(1), [[1, 3, 6, 10], [5, 11, 18, 27]]),
    (lambda x: x.min(dim=0).indices, [0, 0, 0, 0]),
    (lambda x: x.mean(dim=0, keepdim=True), [[3, 4, 5, 6.5]]),
    (lambda x: x[1].sort(0, True)[0], [9, 7, 6, 5]),
    (lambda x: x[1].argsort(0, True), [3, 2, 1, 0]),
    (lambda x: x.argmax(dim=1), [3, 3]),
    (lambda x: x.clamp(2, 4), [[2, 2, 3, 4], [4, 4, 4, 4]]),
    (lambda x: (x > 3).any(dim=1), [True, True]),
    (lambda x: (-x).abs().view((4, 2)), [[1, 2], [3, 4], [5, 6], [7, 9]]),
    (lambda x: x.permute(1, 0).t(), [[1, 2, 3, 4], [5, 6, 7, 9]]),
    (lambda x: x[0].std(0, False), 1.25**0.5),
    (lambda x: x.var(1, True), [5 / 3, 35 / 12]),
    (lambda x: x[0].std(unbiased=True), (5 / 3) ** 0.5),
    (lambda x: x[1].topk(2).values, [9, 7]),
    (lambda x: x[1][x[1].topk(2).indices], [9, 7]),
    (lambda x: x.topk(1, dim=0, largest=False)[1], [[0, 0, 0, 0]]),
    (lambda x: x[0].topk(0).indices, []),
    (lambda x: x[1].sort(descending=True).values, [9, 7, 6, 5]),
    (lambda x: x[1].sort(descending=True).indices, [3, 2, 1, 0]),
    (lambda x: (-x[1]).clone().sort().values, [-9, -7, -6, -5]),
    (lambda x: (-x).clone().sort(1)[1], [[3, 2, 1, 0], [3, 2, 1, 0]]),
    (lambda x: (-x).clone().sort(dim=0).values, [[-5, -6, -7, -9], [-1, -2, -3, -4]]),
    (lambda x: x[0].long().bincount(), [0, 1, 1, 1, 1]),
    (lambda x: x[0].long().bincount(minlength=6), [0, 1, 1, 1, 1, 0]),
    (lambda x: x.squeeze(0), [[1, 2, 3, 4], [5, 6, 7, 9]]),
    (lambda x: x[:1].squeeze(dim=0), [1, 2, 3, 4]),
    (lambda x: x[:1].squeeze(), [1, 2, 3, 4]),
    (lambda x: x[0].squeeze(0), [1, 2, 3, 4]),
    (lambda x: x[0, 0].unsqueeze(0), [1]),
    (lambda x: x[0].eq(2), [False, True, False, False]),
    (lambda x: x[0].ne(2) & x[0].gt(1) & x[0].lt(4), [False, False, True, False]),
    (lambda x: x[0].ge(2) & x[0].le(3), [False, True, True, False]),
    (lambda x: (x[0] == 3).nonzero(as_tuple=True)[0], [2]),
    (lambda x: (x == 3).nonzero(as_tuple=False), [[0, 2]]),
    (lambda x: x.size(), [2, 4]),
    (lambda x: [x.size(0), x.size(dim=1), x.size()[-1]], [2, 4, 4]),
]


@pytest.mark.parametrize(("compute", "expected"), OF_TORCH)
def test_methods_give_what_torch_gives(compute, expected):
    found = np.asarray(compute(tensor(ROWS)))
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


IN_PLACE = [
    (lambda x: x.clamp_(2, 4), [[2, 2, 3, 4], [4, 4, 4, 4]]),
    (lambda x: x.clamp_(max=4), [[1, 2, 3, 4], [4, 4, 4, 4]]),
    (lambda x: x.add_(1), [[2, 3, 4, 5], [6, 7, 8, 10]]),
    (lambda x: x.add_(x[0], alpha=2), [[3, 6, 9, 12], [7, 10, 13, 17]]),
    (lambda x: x.sub_(np.ones(4)), [[0, 1, 2, 3], [4, 5, 6, 8]]),
    (lambda x: x.mul_(x), [[1, 4, 9, 16], [25, 36, 49, 81]]),
    (lambda x: x.div_(2), [[0.5, 1, 1.5, 2], [2.5, 3, 3.5, 4.5]]),
    (lambda x: x.div_(-2, rounding_mode="floor"), [[-1, -1, -2, -2], [-3, -3, -4, -5]]),
    (lambda x: x.int().div_(-2, rounding_mode="trunc"), [[0, -1, -1, -2], [-2, -3, -3, -4]]),
    (lambda x: x.div_(2).round_(), [[0, 1, 2, 2], [2, 3, 4, 4]]),
    (lambda x: x.div_(4).round_(decimals=1), [[0.2, 0.5, 0.8, 1], [1.2, 1.5, 1.8, 2.2]]),
    (lambda x: x.fill_(3), [[3] * 4] * 2),
    (lambda x: x.zero_(), [[0] * 4] * 2),
    (lambda x: x.copy_(x[1]), [[5, 6, 7, 9]] * 2),
    (lambda x: x.int().copy_(x[0] / 2), [[0, 1, 1, 2]] * 2),
]


@pytest.mark.parametrize(("change", "expected"), IN_PLACE)
def test_methods_that_end_in_an_underscore_change_the_values_in_place(change, expected):
    made = change(values := tensor(np.array(ROWS, np.float32)))
    assert type(made) is Tensor
    assert made is values or made.dtype == np.int32  # int() has made a copy
    np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_boxes_change_through_methods_in_place():
    boxes = Boxes(rows_of(RESULT), (50, 100))
    boxes.xyxy[:, 0].add_(5).clamp_(0, 20)
    assert boxes.data[:, 0].tolist() == pytest.approx([20, 5, 20])


def test_methods_in_place_refuse_what_does_not_fit():
    with pytest.raises(TypeError, match="Cannot cast"):
        BOXES.cls.int().add_(0.5)
    with pytest.raises(ValueError, match="broadcast"):
        BOXES.conf.clone().add_(np.ones((2, 3)))
    with pytest.raises(AttributeError):  # a number never changes
        BOXES.conf[0].add_(1)
    with pytest.raises(
        ValueError, match=r"^rounding_mode: expected None, floor or trunc, got 'up'"
    ):
        BOXES.conf.clone().div_(2, rounding_mode="up")


@pytest.mark.parametrize(
    "compute",
    [
        *(np.std, np.var, np.max, np.min, np.sum, np.mean, np.any, np.argmax, np.sort, np.argsort),
        lambda x, axis: np.squeeze(x),
        lambda x, axis: np.nonzero(x)[0],
        lambda x, axis: np.bincount(np.ravel(x).astype(int)),
    ],
)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_functions_of_numpy_give_what_they_give_for_an_array(compute, axis):
    plain = np.array([[4, 2, 3, 1], [5, 9, 7, 6]], np.float32)
    expected = compute(plain, axis=axis)
    assert np.asarray(compute(tensor(plain), axis=axis)).tolist() == expected.tolist()


def test_indices_of_extremes_are_tensors_too():
    assert BOXES.conf.argmax().cpu().numpy() == 0
    assert BOXES[BOXES.conf.argmin()].conf.item() == pytest.approx(0.25)


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_numpy_and_other_libraries_find_methods_of_arrays(kind):
    plain = np.array([3, 1, 3, 2, 1], kind)
    x = tensor(plain)
    for name in ("unique", "tile", "nanstd", "nanvar", "repeat", "ptp", "cumsum", "median"):
        given = (2,) if name in ("tile", "repeat") else ()
        found, expected = (getattr(np, name)(each, *given) for each in (x, plain))
        np.testing.assert_array_equal(found, expected)
    for found, expected in zip(
        np.unique(x, return_counts=True), np.unique(plain, return_counts=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    assert np.intersect1d(x, [1, 3]).tolist() == [1, 3]
    assert np.setdiff1d(x, [1]).tolist() == [2, 3]
    assert (x.max(0), x.min(0), x.std()) == (plain.max(0), plain.min(0), plain.std())
    np.testing.assert_array_equal(x.repeat(2, 0), plain.repeat(2, 0))
    assert x.sort(axis=0) is None  # as NumPy's own functions sort the copies that they make
    assert x.tolist() == [1, 1, 2, 3, 3]


def test_series_of_pandas():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(BOXES.conf)
    assert (series.max(), series.min()) == (BOXES.conf.max(), BOXES.conf.min())
    assert series.describe()["max"] == BOXES.conf.max()
    assert series.repeat(2).tolist() == np.asarray(BOXES.conf).repeat(2).tolist()


def test_size_is_a_number_and_can_be_called():
    assert BOXES.xyxy.size == BOXES.xyxy.numel() == BOXES.xyxy.nelement() == 12
    assert BOXES.cls.size(0) == len(BOXES)
    assert BOXES[:0].xyxy.size(0) == 0
    assert isinstance(BOXES.cls.size, int)


def test_arrays_are_on_the_cpu():
    assert BOXES.xyxy.device == BOXES.xyxy.device.type == "cpu"
    assert BOXES.xyxy.is_cuda is False


def test_truth_values_have_the_methods_too():
    assert (BOXES.cls == 0).any().cpu().numpy()
    assert not (BOXES.conf > 1).all().item()
