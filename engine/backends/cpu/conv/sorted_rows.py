"""Padded rows divided into planes: column x is in plane x % stride.

Adjacent windows then read adjacent columns of each plane, whatever the stride is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.arrays import Array
from engine.backends.cpu.conv.gather import Geometry


@dataclass(frozen=True)
class Plane:
    """The padded columns of one remainder: those of the input between zeros left and right."""

    source: slice  # columns of the input
    left: int
    inner: int
    right: int

    def rows(self, scratch: Array) -> Array:
        """View scratch as (y, x, c) rows that follow a right border of no row."""
        _, width, channels = scratch.shape
        flat = scratch.reshape(-1)[self.right * channels :]
        return flat[: (len(scratch) - 1) * width * channels].reshape(-1, width, channels)

    def borders(self, scratch: Array) -> Array:
        """View the right border of each row together with the left border of the next."""
        rows, _, channels = scratch.shape
        shape = rows, (self.left + self.right) * channels
        return as_strided(scratch, shape, (scratch.strides[0], scratch.itemsize))

    def inside(self, rows: Array) -> Array:
        return rows[:, self.left : self.left + self.inner]


@dataclass(frozen=True)
class Taps:
    """The kernel's columns that read one plane, and their weights, repeated for a run of values."""

    plane: int
    first: int  # column of the plane that the first of them reads for the leftmost window
    step: int
    weight: Array  # (i, j, run)

    def of(self, rows: Array, geometry: Geometry, out_rows: int) -> Array:
        """View the rows of the plane as (i, j, y, run of x, value)."""
        kernel, columns, run = self.weight.shape
        pixels = run // rows.shape[-1]
        y, x, item = rows.strides
        op = geometry.op
        return as_strided(
            rows[:, self.first :],
            (kernel, columns, out_rows, geometry.out_width // pixels, run),
            (y * op.dilation[0], x * self.step, y * op.stride[0], x * pixels, item),
            writeable=False,
        )


class SortedRows:
    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.stride = geometry.op.stride[1]
        self.width = -(-geometry.padded_width // self.stride)
        self.planes = [self._plane(remainder) for remainder in range(self.stride)]

    def shape(self, out_rows: int) -> tuple[int, int, int, int]:
        """Return (plane, y, x, c), with one row more than needed for the outer borders."""
        rows = self.geometry.padded_rows(out_rows) + 1
        return self.stride, rows, self.width, self.geometry.channels

    def taps(self, weight: Array, pixels: int) -> Iterator[Taps]:
        """Yield the taps of each plane; `weight` (c, i, j) is repeated for runs of `pixels`."""
        tiled = np.tile(weight.transpose(1, 2, 0), (1, 1, pixels))
        places = np.arange(tiled.shape[1]) * self.geometry.op.dilation[1]
        for plane in range(self.stride):
            (mine,) = np.nonzero(places % self.stride == plane)
            if len(mine):
                columns = places[mine] // self.stride
                step = int(columns[1] - columns[0]) if len(columns) > 1 else 1
                part = np.ascontiguousarray(tiled[:, mine])
                yield Taps(plane, int(columns[0]), step, part)

    def _plane(self, remainder: int) -> Plane:
        geometry = self.geometry
        first = (remainder - geometry.left_border) % self.stride
        source = slice(first, geometry.inner_width, self.stride)
        inner = len(range(geometry.inner_width)[source])
        left = (first + geometry.left_border) // self.stride if inner else 0
        return Plane(source, left, inner, self.width - left - inner)
