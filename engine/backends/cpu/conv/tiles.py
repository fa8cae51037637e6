"""Winograd's tiles and transforms for 3 x 3 convolutions.

F(4 x 4, 3 x 3) computes 4 x 4 sums with 36 multiplications instead of 144, F(2 x 2, 3 x 3) computes
2 x 2 sums with 16 instead of 36.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.arrays import Array

# Columns of one product in float64: OpenBLAS splits larger products among threads, which on busy
# processors wait for each other much longer than they multiply.
_COLUMNS_OF_PRODUCT = 65536 * 4 // (36 * 9)
_COLUMNS_OF_CALL = 8192  # of matmul(), which makes a product for each channel; bounds its memory


@dataclass(frozen=True)
class Tiling:
    """F(side x side, 3 x 3) by the Toom-Cook method at `points` and infinity."""

    side: int  # of the block of sums that one tile yields
    points: tuple[float, ...]

    @property
    def seen(self) -> int:
        """The side of the block of cells that one tile reads."""
        return self.side + 2

    def count(self, cells: int) -> int:
        """Return how many tiles cover a line of `cells` sums."""
        return -(-cells // self.side)

    def transforms(self, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """Return B' and A'."""
        _, from_cells, to_sums = self._matrices()
        return from_cells.astype(dtype), to_sums.astype(dtype)

    def transformed(self, weight: Array) -> Array:
        """Return G weight G' as (position, c, n)."""
        from_weight = self._matrices()[0]
        both = np.kron(from_weight, from_weight)
        filters, channels = weight.shape[:2]
        taps = weight.reshape(filters, channels, 9).transpose(1, 2, 0)
        result = np.empty((self.seen**2, channels, filters), weight.dtype)
        by_channel = result.transpose(1, 0, 2)
        few = min(filters, _COLUMNS_OF_PRODUCT)
        together = -(-_COLUMNS_OF_CALL // few)
        for n in range(0, filters, few):
            for c in range(0, channels, together):
                part = (slice(c, c + together), slice(None), slice(n, n + few))
                by_channel[part] = np.matmul(both, taps[part].astype(np.float64, order="C"))
        return result

    def tiles_of(self, cells: Array, down: int, across: int) -> Array:
        """View padded cells (y, x, c) as overlapping tiles (i, j, down, across, c)."""
        y, x, item = cells.strides
        shape = self.seen, self.seen, down, across, cells.shape[-1]
        steps = y, x, self.side * y, self.side * x, item
        return as_strided(cells, shape, steps, writeable=False)

    def assembly(self, made: Array, sums: Array, corners: int) -> Callable[[], None]:
        """Return a function that rearranges tiles (position, values) as a map (y, x, filter).

        With two corners it also takes the maximum of each 2 x 2 cells.
        """
        each = self.side // corners
        height, width, filters = sums.shape
        by_tile = sums.reshape(height // each, each, width // each, each, filters)
        by_tile = by_tile.transpose(1, 3, 0, 2, 4)
        if corners == 1:
            return partial(np.copyto, by_tile, made.reshape(by_tile.shape))
        halves = made.reshape(each, 2, each, 2, -1)  # (y, corner y, x, corner x, values)
        tall, pooled = halves[:, 0], halves[:, 0, :, 0]
        result = pooled.reshape(by_tile.shape)

        def pool() -> None:
            np.maximum(tall, halves[:, 1], out=tall)
            np.maximum(pooled, halves[:, 0, :, 1], out=pooled)
            np.copyto(by_tile, result)

        return pool

    def _matrices(self) -> tuple[Array, Array, Array]:
        """Return G (seen, 3), B' (seen, seen) and A' (side, seen)."""
        points = np.array(self.points)
        count, seen, side = len(points), self.seen, self.side
        weight, cells, sums = np.zeros((seen, 3)), np.zeros((seen, seen)), np.zeros((side, seen))
        for k, point in enumerate(points):
            others = np.delete(points, k)
            weight[k] = point ** np.arange(3) / np.prod(point - others)
            cells[k, :count] = np.poly(others)[::-1]
            sums[:, k] = point ** np.arange(side)
        weight[-1, -1] = sums[-1, -1] = 1
        cells[-1] = np.poly(points)[::-1]
        return weight, cells, sums


FOUR = Tiling(4, (0.0, 0.75, -0.75, 1.5, -1.5))  # rounds less than 0, 1, -1, 2, -2
TWO = Tiling(2, (0.0, 1.0, -1.0))


def rows_first(matrix: Array, values: Array, middle: Array, out: Array) -> None:
    """Set out[p, q] to the sum over i and j of matrix[p, i] * matrix[q, j] * values[i, j].

    All arrays except the matrix are (., ., n); values and middle are contiguous.
    """
    seen = len(values)
    np.matmul(matrix, values.reshape(seen, -1), out=middle.reshape(len(matrix), -1))
    np.matmul(matrix, middle, out=out)


def columns_first(matrix: Array, values: Array, middle: Array, out: Array) -> None:
    """Do the same as rows_first; here middle and out are contiguous."""
    np.matmul(matrix, values, out=middle)
    np.matmul(matrix, middle.reshape(len(middle), -1), out=out.reshape(len(matrix), -1))
