import numpy as np
import pytest

from engine.plan import int8


def test_weights_have_a_scale_for_each_filter():
    weight = np.array([[1, -2.54], [0, 0], [127e-3, 0.5e-3]], np.float32).reshape(3, 2, 1, 1)
    values, scales = int8.quantise_weights(weight)
    assert values.dtype == np.int8
    assert values.reshape(3, 2).tolist() == [[50, -127], [0, 0], [127, 0]]  # 0.5 to even
    np.testing.assert_allclose(scales[[0, 2]], [0.02, 0.001], rtol=1e-6)
    assert np.isfinite(1 / scales).all()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (126.6, 127), (1e30, 127), (-1e30, -128)],
)
def test_values_are_rounded_half_to_even_and_limited(value, expected):
    out = np.empty(1, np.int8)
    int8.quantise(np.array([value], np.float32), 1.0, out)
    assert out == expected


def test_a_product_and_a_sum_are_rounded_once():
    a, b = np.float32(1 + 2**-12), np.float32(-(1 + 2**-11))
    (found,) = int8.multiply_add(np.array([a]), a, b)
    assert found == np.float32(2**-24)  # of two roundings, nothing would be left
    assert found.dtype == np.float32


def test_a_scale_is_finite_and_has_an_inverse():
    for largest in (0.0, 1e-45, 1.0, 3e38):
        scale = int8.scale_of(largest)
        assert scale == np.float32(scale)
        assert 0 < int8.inverse(scale) < np.inf
