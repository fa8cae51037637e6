import numpy as np
import pytest

from engine.calibrate.histogram import Histogram


def histogram(*arrays):
    made = Histogram()
    for each in arrays:
        made.add(np.asarray(each, np.float32))
    return made


def test_limits_of_values_that_grow():
    random = np.random.default_rng(0)
    parts = [random.standard_normal(5000) * factor for factor in (0.1, 1, 10)]
    made = histogram(*parts)
    every = np.abs(np.concatenate(parts))
    assert made.limit("max") == pytest.approx(every.max())
    for percent in (99, 99.9):
        expected = np.percentile(every, percent)
        assert made.limit(f"{percent}%") == pytest.approx(expected, rel=0.02)


def test_zeros_do_not_count_for_percentiles():
    made = histogram(np.concatenate([np.zeros(10**5), np.linspace(1, 2, 1000)]))
    assert made.limit("90%") == pytest.approx(1.9, rel=0.01)


def test_the_least_error_clips_an_outlier():
    values = np.random.default_rng(0).uniform(-1, 1, 10**5)
    assert histogram(values).limit("mse") == pytest.approx(1, rel=0.05)
    assert 3 < histogram(values, [7.0]).limit("mse") < 6


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_has_no_limit(value):
    made = histogram([1, 2, 3], [value, 0], [4])
    assert {made.limit(method) for method in ("max", "mse", "99%")} == {np.inf}


def test_nothing_but_zeros():
    made = histogram(np.zeros(9), [])
    assert {made.limit(method) for method in ("max", "mse", "99%")} == {0.0}
