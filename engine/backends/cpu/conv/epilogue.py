"""What follows the sums of a convolution: bias, activation, residual, last activation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.arrays import Array
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS

Stage = Callable[[Array, Array, Array, Array | None], None]  # (block, spare, target, residual)

_SLOPES = {"leaky": 0.1, "revleaky": 0.1, "relie": 0.01}
LONG_ROW = 256  # values; over shorter rows NumPy spends its time between the loops


class Epilogue:
    """Turns a block of raw sums into values of `out`.

    It works in place on memory that is in the cache, and only the last stage writes to `out`.
    """

    def __init__(self, stages: list[Stage]) -> None:
        self._before = tuple(stages[:-1])
        self._last = stages[-1] if stages else _copy

    def __call__(self, block: Array, spare: Array, out: Array, residual: Array | None) -> None:
        """All arrays have one shape; `spare` is scratch of it."""
        for stage in self._before:
            stage(block, spare, block, residual)
        self._last(block, spare, out, residual)


def epilogue(op: ops.Conv2d, bias: Array | None) -> Epilogue:
    """Return all that follows the sums of `op` but its pool; `bias` spans a row of the block."""
    stages = [] if bias is None else [_add(bias)]
    for step in op.tail:
        if isinstance(step, ops.Add):
            stages.append(_add_residual)
        if isinstance(step, ops.Add | ops.Activate):
            stages += _activation(step.activation)
    return Epilogue(stages)


def joins_pixels(*arrays: Array | None) -> bool:
    """Whether rows of short pixels (..., y, x, c) can be handled as one long run (..., y, x*c)."""
    return all(
        array is None
        or (array.strides[-1] * array.shape[-1] == array.strides[-2] and array.shape[-1] < LONG_ROW)
        for array in arrays
    )


def join_pixels(array: Array) -> Array:
    return array.reshape(*array.shape[:-2], -1)


def _add(bias: Array) -> Stage:
    def add_bias(block: Array, _: Array, target: Array, __: Array | None) -> None:
        np.add(block, bias, out=target)

    return add_bias


def _add_residual(block: Array, _: Array, target: Array, residual: Array | None) -> None:
    np.add(block, residual, out=target)  # type: ignore[arg-type]


def _copy(block: Array, _: Array, target: Array, __: Array | None) -> None:
    np.copyto(target, block)


def _activation(name: str) -> list[Stage]:
    if name == "linear":
        return []
    if name in _SLOPES:
        return [_rectify_with_slope(_SLOPES[name])]
    function = ACTIVATIONS[name].numpy

    def activate(block: Array, _: Array, target: Array, __: Array | None) -> None:
        np.copyto(target, function(block))

    return [activate]


def _rectify_with_slope(slope: float) -> Stage:
    def rectify(block: Array, spare: Array, target: Array, _: Array | None) -> None:
        np.multiply(block, slope, out=spare)
        np.maximum(block, spare, out=target)

    return rectify
