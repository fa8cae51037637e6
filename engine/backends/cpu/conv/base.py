"""The interface of a prepared convolution, and the division of work among threads."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from engine.arrays import Array
from engine.backends.cpu.storage import Kernel
from engine.backends.cpu.workers import Workers
from engine.plan.ops import Conv2d

PIECE_BYTES = 512 * 1024  # columns that fit in a core's own cache with their product


class Convolution(ABC):
    """One Conv2d prepared to run: weights are repacked and scratch is reserved.

    Arrays are NHWC; they may be channel slices of wider maps.
    """

    weights: tuple[Array, ...]

    @property
    def algorithm(self) -> str:
        """The name of its file."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Kernel:
        """Return a function that runs it on these arrays; all views are made here, once."""

    def __call__(self, src: Array, out: Array, residual: Array | None = None) -> None:
        self.bind(src, out, residual)()


class FloatConvolution(Convolution):
    """A convolution of floats that is not in a chain, with the attributes that all of them have."""

    def __init__(self, op: Conv2d, weight: Array, bias: Array | None, workers: Workers) -> None:
        self.op = op
        self.bias = bias
        self.workers = workers
        self.dtype = weight.dtype
        self.corners = 2 if op.pools_quads else 1  # in each direction, of a pool's cells


def start_of(memory: Array, shape: tuple[int, ...]) -> Array:
    """View the first values of a flat array in a shape."""
    return memory[: math.prod(shape)].reshape(shape)


def spans(total: int, longest: int) -> list[tuple[int, int]]:
    """Divide 0 .. total into the fewest spans of at most `longest`, nearly equal in length.

    Their number is even if there are several, so that two threads have equal work.
    """
    count = -(-total // max(1, longest))
    if count > 1:
        count = min(count + count % 2, total)
    return [(k * total // count, (k + 1) * total // count) for k in range(count)]


def largest_divisor(number: int, most: int) -> int:
    """Return the largest divisor of `number` that is at most `most`, or 1."""
    return max(k for k in range(1, number + 1) if number % k == 0 and k <= max(1, most))
