"""What a convolution algorithm hands back, and the pieces that algorithms cut work into."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from engine.arrays import Array

PIECE_BYTES = 512 * 1024  # columns that fit in a core's own cache together with their product


class Convolution(ABC):
    """One Conv2d made ready: weights repacked, scratch reserved.

    Arrays are (rows, height, width, channels); they may be channel slices of wider maps.
    """

    weights: tuple[Array, ...]

    @property
    def algorithm(self) -> str:
        """The name of the file that it comes from."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Callable[[], None]:
        """Return the function that runs it on these arrays: all views are made here, once."""

    def __call__(self, src: Array, out: Array, residual: Array | None = None) -> None:
        self.bind(src, out, residual)()


def spans(total: int, longest: int) -> list[tuple[int, int]]:
    """Cut 0 .. total into the fewest spans of at most `longest`, as even as can be.

    Their number is even if there are several, so that two threads have the same to do.
    """
    count = -(-total // max(1, longest))
    if count > 1:
        count = min(count + count % 2, total)
    return [(k * total // count, (k + 1) * total // count) for k in range(count)]


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is at most `most`, or 1."""
    return max(k for k in range(1, number + 1) if number % k == 0 and k <= max(1, most))
