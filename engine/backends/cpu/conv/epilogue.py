"""The epilogue of a convolution: bias, activations and residual, while sums are in the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.arrays import Array
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS

# Takes (block, spare, out, residual) of the same shape; `spare` is scratch memory.
Stage = Callable[[Array, Array, Array, Array | None], None]

_SLOPES = {"leaky": 0.1, "revleaky": 0.1, "relie": 0.01}
LONG_ROW = 256  # values; on shorter rows the overhead of NumPy's loops dominates


def epilogue(op: ops.Conv2d, bias: Array | None) -> Stage:
    """Return what follows the sums of `op`, except its pool; `bias` is as long as a row.

    All stages but the last work in place, on memory that is in the cache.
    """
    stages = [] if bias is None else [_add(bias)]
    for step in op.tail:
        if isinstance(step, ops.Add):
            stages.append(_add_residual)
        if isinstance(step, ops.Add | ops.Activate):
            stages += _activation(step.activation)
    *before, last = stages or [_copy]

    def run(block: Array, spare: Array, out: Array, residual: Array | None) -> None:
        for stage in before:
            stage(block, spare, block, residual)
        last(block, spare, out, residual)

    return run


def joins_pixels(*arrays: Array | None) -> bool:
    """Return whether (..., y, x, c) with few channels can be processed as rows (..., y, x*c)."""
    return all(
        array is None
        or (array.strides[-1] * array.shape[-1] == array.strides[-2] and array.shape[-1] < LONG_ROW)
        for array in arrays
    )


def join_pixels(array: Array) -> Array:
    return array.reshape(*array.shape[:-2], -1)


def _add(bias: Array) -> Stage:
    def add_bias(block: Array, _: Array, out: Array, __: Array | None) -> None:
        np.add(block, bias, out=out)

    return add_bias


def _add_residual(block: Array, _: Array, out: Array, residual: Array | None) -> None:
    np.add(block, residual, out=out)  # type: ignore[arg-type]


def _copy(block: Array, _: Array, out: Array, __: Array | None) -> None:
    np.copyto(out, block)


def _activation(name: str) -> list[Stage]:
    if name == "linear":
        return []
    if name in _SLOPES:
        return [_rectify_with_slope(_SLOPES[name])]
    function = ACTIVATIONS[name].numpy

    def activate(block: Array, _: Array, out: Array, __: Array | None) -> None:
        np.copyto(out, function(block))

    return [activate]


def _rectify_with_slope(slope: float) -> Stage:
    def rectify(block: Array, spare: Array, out: Array, _: Array | None) -> None:
        np.multiply(block, slope, out=spare)
        np.maximum(block, spare, out=out)

    return rectify
