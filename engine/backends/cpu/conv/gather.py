"""Padded rows of the input, and views of the windows of a convolution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from engine.arrays import Array
from engine.plan import ops


@dataclass(frozen=True)
class Geometry:
    """The rows of cells, padding included, that windows of a convolution cover."""

    op: ops.Conv2d
    out_width: int  # windows of a row

    @property
    def channels(self) -> int:
        return self.op.src.shape.channels

    def padded_rows(self, rows: int) -> int:
        """Return how many rows of cells, padding included, `rows` rows of windows cover."""
        op = self.op
        return (rows - 1) * op.stride[0] + op.dilation[0] * (op.kernel[0] - 1) + 1

    @property
    def padded_width(self) -> int:
        op = self.op
        return (self.out_width - 1) * op.stride[1] + op.dilation[1] * (op.kernel[1] - 1) + 1

    @property
    def left_border(self) -> int:
        return min(self.op.padding[1], self.padded_width)

    @property
    def inner_width(self) -> int:
        """The columns of the input that windows reach."""
        return min(self.op.src.shape.width, self.padded_width - self.left_border)

    def padded_shape(self, rows: int) -> tuple[int, int, int]:
        """Return the shape of scratch for `rows` rows of windows, with a row for outer borders."""
        return self.padded_rows(rows) + 1, self.padded_width, self.channels


class PaddedRows:
    """The padded cells of a span of rows of windows, to be copied into scratch memory.

    The right border of a row and the left border of the next are adjacent in memory, so one fill
    sets both. The scratch therefore begins with a right border that belongs to no row.
    """

    def __init__(self, geometry: Geometry, sample: Array, span: tuple[int, int]) -> None:
        self.geometry = geometry
        first, last = span
        self.rows = last - first
        start = first * geometry.op.stride[0] - geometry.op.padding[0]
        stop = start + geometry.padded_rows(self.rows)
        self.above = min(max(0, -start), stop - start)
        height = geometry.op.src.shape.height
        self.below = min(max(0, stop - height), stop - start - self.above)
        inside = slice(start + self.above, stop - self.below)
        self.source = sample[inside, : geometry.inner_width]

    @property
    def kind(self) -> tuple[int, int, int]:
        """The key of a block's views: equal keys need equal views of the scratch."""
        return self.rows, self.above, self.below

    def view(self, scratch: Array) -> Array:
        """Return the padded rows (y, x, c) in `scratch`, which has the shape `padded_shape`."""
        geometry = self.geometry
        width, channels = geometry.padded_width, geometry.channels
        right = width - geometry.left_border - geometry.inner_width
        rows = geometry.padded_rows(self.rows)
        flat = scratch.reshape(-1)[right * channels :][: rows * width * channels]
        return flat.reshape(rows, width, channels)

    def inner(self, scratch: Array) -> Array:
        """Return the view that `source` is copied to."""
        padded, left = self.view(scratch), self.geometry.left_border
        return padded[
            self.above : len(padded) - self.below, left : left + self.geometry.inner_width
        ]

    def borders(self, scratch: Array) -> list[Array]:
        """Return the views to fill with the value of cells outside."""
        geometry, padded = self.geometry, self.view(scratch)
        found = []
        border = geometry.padded_width - geometry.inner_width
        if border:
            whole = scratch.reshape(-1)
            shape = len(padded) + 1, border * geometry.channels
            steps = padded.strides[0], whole.itemsize
            found.append(as_strided(whole, shape, steps))
        if self.above:
            found.append(padded[: self.above])
        if self.below:
            found.append(padded[len(padded) - self.below :])
        return found


def windows(geometry: Geometry, padded: Array, rows: int, *, quads: bool = False) -> Array:
    """View the windows of (y, x, c) cells as (y, x, i, j, c).

    With `quads` the result is (2, 2, y, x, i, j, c): the first axes are the corners of the 2 x 2
    cells of a pool, which then is a maximum over four arrays.
    """
    step_y, step_x, step_c = padded.strides
    op = geometry.op
    y, x = step_y * op.stride[0], step_x * op.stride[1]
    taps = (*op.kernel, geometry.channels)
    tap_steps = (step_y * op.dilation[0], step_x * op.dilation[1], step_c)
    columns = geometry.out_width
    shape: tuple[int, ...] = (rows, columns, *taps)
    steps: tuple[int, ...] = (y, x, *tap_steps)
    if quads:
        shape = (2, 2, rows // 2, columns // 2, *taps)
        steps = (y, x, 2 * y, 2 * x, *tap_steps)
    return as_strided(padded, shape, steps, writeable=False)


def take_signs(cells: Array) -> None:
    """Replace x by +1 where x > 0, else by -1."""
    np.copyto(cells, np.where(cells > 0, 1, -1))
