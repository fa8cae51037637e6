"""The arithmetic of 8-bit convolutions, which is identical on every backend.

A value is q * scale with q in -128 .. 127. There is no zero point, so cells outside a map are 0.
Weights have a scale for each filter, activations one for each tensor: see Plan.scales. A
convolution adds integer products, exactly, and then computes in float32:

    x = float(sum) * factor[n] + bias[n], where factor[n] = scale of src * scale of filter n
    the tail of the convolution, where a residual adds q * scale of residual
    q = x * inverse scale of out, rounded half to even and limited to -128 .. 127

A product and a sum are rounded once, like fma(); here they are computed in float64. What becomes of
NaN is not defined, but sums of integers and finite weights give none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.arrays import Array

LARGEST = 127  # largest weight, and the value of the largest activation
CHANNELS = 16  # int8 tensors have a multiple of these, so that every pixel begins on 16 bytes
DEEPEST = 1 << 17  # number of products whose sum fits into 32 bits

_SMALLEST_SCALE = float(np.finfo(np.float32).tiny) * (1 << 20)  # its inverse is finite


def scale_of(largest: float) -> float:
    """Return the scale of values up to `largest`, a float32 as a Python float."""
    return float(np.float32(max(largest / LARGEST, _SMALLEST_SCALE)))


def inverse(scale: float) -> np.float32:
    """Return the factor by which values are quantised."""
    return np.float32(1 / scale)


def quantise_weights(
    weight: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return int8 weights, and the scale of each filter; those of a dead filter are zero."""
    by_filter = weight.reshape(len(weight), -1).astype(np.float64)
    largest = np.abs(by_filter).max(axis=1, initial=0)
    scales = np.maximum(largest / LARGEST, _SMALLEST_SCALE).astype(np.float32)
    values = np.rint(by_filter / scales[:, None].astype(np.float64))
    limited = np.clip(values, -LARGEST, LARGEST).astype(np.int8)
    return limited.reshape(weight.shape), scales


def factors(scale: float, scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the factors of integer sums, given the scales of a source and of filters."""
    return np.asarray(np.float32(scale) * scales, np.float32)


def multiply_add(values: Array, factor: Array | np.float32, addend: Array | float) -> Array:
    """Return values * factor + addend as float32, rounded once."""
    total = np.multiply(values, factor, dtype=np.float64)
    np.add(total, addend, out=total)
    return total.astype(np.float32)


def quantise(values: Array, scale: float, out: Array) -> None:
    """Write float32 values to an int8 array."""
    products = np.multiply(values, inverse(scale), dtype=np.float64)
    np.rint(products, out=products)
    np.clip(products, -128, 127, out=products)
    np.copyto(out, np.nan_to_num(products, copy=False), casting="unsafe")


def dequantise(values: Array, scale: float, out: Array) -> None:
    """Write int8 values to a float32 array."""
    np.multiply(values, np.float32(scale), out=out, dtype=np.float32)
