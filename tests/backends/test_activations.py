"""Each row of plan/activations.py: its NumPy form and its attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.plan.activations import ACTIVATIONS, Activation
from tests.backends.loops import FORMULAS, activated

GRID = np.concatenate([np.linspace(-30, 30, 2401), [-1000, -100, -88.8, 88.8, 100, 1000, 1e-8, 0]])

every_row = pytest.mark.parametrize("row", ACTIVATIONS.values(), ids=lambda row: row.name)


def test_every_row_has_a_formula() -> None:
    assert set(ACTIVATIONS) == set(FORMULAS)


@every_row
def test_numpy_form_agrees_with_the_formula(row: Activation) -> None:
    np.testing.assert_allclose(row.numpy(GRID), activated(row.name, GRID), rtol=1e-12, atol=1e-14)


@every_row
def test_float32_is_close_to_the_formula(row: Activation) -> None:
    values = GRID.astype(np.float32)
    expected = activated(row.name, values.astype(np.float64))
    np.testing.assert_allclose(row.numpy(values), expected, rtol=1e-5, atol=1e-6)


@every_row
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keeps_the_dtype(row: Activation, dtype: Any) -> None:
    assert row.numpy(np.zeros((2, 3), dtype)).dtype == dtype


@every_row
def test_does_not_change_its_argument(row: Activation) -> None:
    values = GRID.astype(np.float32)
    row.numpy(values)
    np.testing.assert_array_equal(values, GRID.astype(np.float32))


@pytest.mark.parametrize("name", [row.name for row in ACTIVATIONS.values() if row.rises])
def test_monotonic_activations_are_monotonic_in_float32(name: str) -> None:
    values = ACTIVATIONS[name].numpy(np.sort(GRID).astype(np.float32))
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("name", ["swish", "mish", "hard_mish", "gelu"])
def test_activations_with_a_minimum_are_not_monotonic(name: str) -> None:
    assert not ACTIVATIONS[name].rises
    assert (np.diff(ACTIVATIONS[name].numpy(np.sort(GRID))) < 0).any()


def test_logistic_saturates_exactly() -> None:
    far = np.array([-100, 100], np.float32)
    np.testing.assert_array_equal(ACTIVATIONS["logistic"].numpy(far), [0, 1])
