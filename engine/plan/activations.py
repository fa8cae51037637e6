"""Elementwise activations, each with a NumPy and a CUDA C form in one row of a table.

To add an activation, add a row. The NumPy form keeps the dtype of `x`; the CUDA form is an
expression of `float x`. `rises` says that f is monotonic, so that the maximum of activated values
is the activation of the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array


@dataclass(frozen=True)
class Activation:
    name: str
    numpy: Callable[[Array], Array]
    cuda: str
    rises: bool = True


def _logistic(x: Array) -> Array:
    with np.errstate(over="ignore"):  # exp(100) is inf, and 1 / (1 + inf) is 0 as it should be
        return np.asarray(1 / (1 + np.exp(-x)))


def _mish(x: Array) -> Array:
    """Return x tanh(log(1 + e^x)) with one exponential; for x >= 20 it equals x."""
    e = np.exp(np.minimum(x, 20))
    m = e * (e + 2)
    return np.asarray(x * (m / (m + 2)))


def _tanh(x: Array) -> Array:
    return np.asarray(np.tanh(x))


def _stair(x: Array) -> Array:
    floor = np.floor(x)
    return np.where(np.mod(floor, 2) == 0, np.floor(x / 2), (x - floor) + np.floor(x / 2))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(0.797885 * x + 0.035677 * x * x * x)))


def _elu(x: Array) -> Array:
    return np.where(x >= 0, x, np.expm1(np.minimum(x, 0)))


def _selu(x: Array) -> Array:
    return np.where(x >= 0, 1.0507 * x, 1.0507 * 1.6732 * np.expm1(np.minimum(x, 0)))


def _plse(x: Array) -> Array:
    middle = 0.125 * x + 0.5
    return np.where(x < -4, 0.01 * (x + 4), np.where(x > 4, 0.01 * (x - 4) + 1, middle))


def _lhtan(x: Array) -> Array:
    return np.where(x < 0, 0.001 * x, np.where(x > 1, 0.001 * (x - 1) + 1, x))


def _hard_mish(x: Array) -> Array:
    return np.where(x > 0, x, np.where(x > -2, x * x / 2 + x, np.zeros_like(x)))


# m in _mish(). CUDA forms may call the functions of kernels/functions.cuh.
_MISH = "exponential(fminf(x, 20.f)) * (exponential(fminf(x, 20.f)) + 2.f)"

ACTIVATIONS: dict[str, Activation] = {
    row.name: row
    for row in (
        Activation("linear", lambda x: x, "x"),
        Activation("leaky", lambda x: np.maximum(x, x * 0.1), "fmaxf(x, .1f * x)"),
        # not fmaxf, which returns 0 for NaN and would hide an overflow
        Activation("relu", lambda x: np.maximum(x, 0), "x < 0.f ? 0.f : x"),
        Activation("relu6", lambda x: np.clip(x, 0, 6), "fminf(fmaxf(x, 0.f), 6.f)"),
        Activation("relie", lambda x: np.maximum(x, x * 0.01), "fmaxf(x, .01f * x)"),
        Activation("ramp", lambda x: np.maximum(x, 0) + 0.1 * x, "fmaxf(x, 0.f) + .1f * x"),
        Activation("revleaky", lambda x: np.maximum(x, x * 0.1), "fmaxf(x, .1f * x)"),
        Activation("logistic", _logistic, "reciprocal(1.f + exponential(-x))"),
        Activation(
            "loggy", lambda x: 2 * _logistic(x) - 1, "2.f * reciprocal(1.f + exponential(-x)) - 1.f"
        ),
        Activation("tanh", _tanh, "tanhf(x)"),
        Activation(
            "swish",
            lambda x: x * _logistic(x),
            "x * reciprocal(1.f + exponential(-x))",
            rises=False,
        ),
        Activation(
            "mish",
            _mish,
            f"x * ({_MISH} * reciprocal({_MISH} + 2.f))",
            rises=False,
        ),
        Activation(
            "hard_mish", _hard_mish, "x > 0.f ? x : x > -2.f ? x * x / 2.f + x : 0.f", rises=False
        ),
        Activation(
            "gelu",
            _gelu,
            ".5f * x * (1.f + tanhf(.797885f * x + .035677f * x * x * x))",
            rises=False,
        ),
        Activation("elu", _elu, "x >= 0.f ? x : expm1f(x)"),
        Activation("selu", _selu, "1.0507f * (x >= 0.f ? x : 1.6732f * expm1f(x))"),
        Activation(
            "plse",
            _plse,
            "x < -4.f ? .01f * (x + 4.f) : x > 4.f ? .01f * (x - 4.f) + 1.f : .125f * x + .5f",
            rises=False,
        ),
        Activation(
            "stair",
            _stair,
            "fmodf(floorf(x), 2.f) == 0.f ? floorf(x / 2.f) : x - floorf(x) + floorf(x / 2.f)",
        ),
        Activation("hardtan", lambda x: np.clip(x, -1, 1), "fminf(fmaxf(x, -1.f), 1.f)"),
        Activation("lhtan", _lhtan, "x < 0.f ? .001f * x : x > 1.f ? .001f * (x - 1.f) + 1.f : x"),
    )
}
