"""Items can be read as numbers of NumPy's and as rows of a column; the rest is NumPy's own."""

import pickle

import numpy as np
import pytest

from engine.compat.cv2_dnn.old_and_new import Items

NAMES = ["a", "b", "c", "d"]


def classes():
    return Items.of([3, 1, 3], np.int32)


def scores():
    return Items.of([[0.7551285], [0.25], [0.5]], np.float32)


def test_integers():
    for first in (classes()[0], next(iter(classes())), classes()[::2][1], classes()[[0]][0]):
        assert first == 3
        assert first[0] == first[-1] == first.item() == first.tolist() == 3
        assert NAMES[first] == NAMES[first[0]] == "d"
        assert isinstance(first, np.int32)
        assert repr(first) == repr(np.int32(3))
        assert first.astype(int) == 3
    with pytest.raises(IndexError):
        classes()[0][1]
    assert [i for (i,) in classes()] == [3, 1, 3]
    assert classes().flatten().tolist() == classes().tolist() == [3, 1, 3]


def test_floats():
    assert scores().shape == (3,)
    first = scores()[0]
    assert first[0] == first[()] == first[...] == np.float32(0.7551285)
    assert str(first) == "0.7551285"
    assert repr(first) == repr(np.float32(0.7551285))
    assert f"{first:.2f}" == "0.76"
    assert first.round(2) == np.float32(0.76)
    assert first.dtype == np.float32


def test_what_is_computed_is_numpys():
    assert f"{sum(classes() == 3)}" == "2"
    assert list(range(sum(classes() == 3))) == [0, 1]
    assert ",".join(classes().astype(str)) == "3,1,3"
    assert [NAMES[each] for each in classes().astype(object)] == ["d", "b", "d"]
    assert [~each for each in scores() > 0.5] == [False, True, True]
    assert (classes() == 3)[0] & (scores() > 0.5)[0]
    assert {3: "best"}[classes().max()] == "best"
    assert {classes().max()} == {3}
    assert round(scores().max(), 2) == np.float32(0.76)
    for value in (classes() + 1, np.round(scores(), 1) * 2, classes() == 3, np.hstack([classes()])):
        assert type(value) is np.ndarray
    for number in (classes().max(), scores().sum(), classes().argmax(), scores().mean()):
        assert isinstance(number, np.generic)


def test_other_shapes():
    for column in (classes()[:, None], classes().reshape(-1, 1), np.expand_dims(classes(), 1)):
        assert [int(i) for (i,) in column] == [int(i[0]) for i in column] == [3, 1, 3]
        assert column[0].shape == (1,)
    assert [row.tolist() for row in np.column_stack((classes(), scores()))][1] == [1, 0.25]


def test_a_change_in_place_keeps_the_items():
    percent = scores()
    percent *= 100
    assert percent[1][0] == 25


def test_the_rest_of_an_array():
    assert repr(classes()) == repr(np.array([3, 1, 3], np.int32))
    assert type(pickle.loads(pickle.dumps(classes()))) is np.ndarray
    assert type(pickle.loads(pickle.dumps(classes()[0]))) is np.int32
