"""PlainResults; what is computed from arrays of this kind is NumPy's."""

import pickle

import numpy as np

from engine.compat.plain_results import PlainResults


def row():
    return np.arange(3, dtype=np.float32).view(PlainResults)


def test_what_is_computed_is_numpys():
    for value in (
        row() + 1,
        row() > 1,
        np.round(row()),
        np.hstack([row(), row()]),
        row().flatten(),
    ):
        assert type(value) is np.ndarray
    for number in (row().sum(), row().max(), row().mean(), row().argmax()):
        assert isinstance(number, np.generic)
    assert type(pickle.loads(pickle.dumps(row()))) is np.ndarray
    assert repr(row()) == repr(np.asarray(row()))


def test_a_change_in_place_keeps_the_array():
    changed = held = row()
    changed *= 2
    assert changed is held
    assert changed.tolist() == [0, 2, 4]
