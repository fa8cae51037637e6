"""Shapes of one sample, without the batch, and windows that slide over them."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    channels: int
    height: int = 1
    width: int = 1

    @property
    def area(self) -> int:
        return self.height * self.width

    @property
    def size(self) -> int:
        return self.channels * self.height * self.width

    @property
    def sides(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    def with_channels(self, channels: int) -> Shape:
        return replace(self, channels=channels)

    def __str__(self) -> str:
        return f"{self.channels} x {self.height} x {self.width}"


@dataclass(frozen=True)
class Window:
    """A sliding window; pairs are (vertical, horizontal), padding is (top, left, bottom, right)."""

    size: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)


def window_count(extent: int, size: int, stride: int, padding: int) -> int:
    """Return how many windows fit into `extent` cells plus `padding` cells in total.

    The division truncates toward zero, as in C.
    """
    return int((extent + padding - size) / stride) + 1
