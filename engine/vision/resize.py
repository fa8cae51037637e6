"""Darknet's ways to bring a picture to the network's size, value by value as darknet does it.

Corner-aligned bilinear, horizontally first, in float32:
    part[y,x] = (1 - dx) * src[y,ix] + dx * src[y,ix+1]     ix + dx = x * (in - 1) / (out - 1)
    out[y,x]  = (1 - dy) * part[iy,x] + dy * part[iy+1,x]   the last column and row are copied
There is no filter against aliasing when a picture shrinks.

Only the rows and columns that some output needs are gathered, as bytes; the arithmetic on those
is the same, and so is every bit of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.vision.image import Picture

Array = NDArray[Any]
Sides = tuple[int, int]
Fit = Literal["stretch", "letterbox", "crop"]

_GREY = np.float32(0.5)
_BAND = 32  # output rows at a time: the intermediate values of a band stay in the cache


@dataclass(frozen=True)
class Placement:
    """Where a picture lies inside the network's input; sizes are (width, height) in pixels."""

    picture: Sides
    network: Sides
    kind: Fit = "stretch"

    @property
    def inner(self) -> Sides:
        """The size of the scaled picture."""
        (width, height), (net_width, net_height) = self.picture, self.network
        if self.kind == "stretch":
            return self.network
        if self.kind == "crop":  # darknet: the shorter side becomes the network's width
            if width < height:
                return net_width, height * net_width // width
            return width * net_width // height, net_width
        if np.float32(net_width) / np.float32(width) < np.float32(net_height) / np.float32(height):
            return net_width, height * net_width // width
        return width * net_height // height, net_height

    @property
    def offset(self) -> Sides:
        """Where the scaled picture begins in the network's input, in whole pixels."""
        (width, height), (net_width, net_height) = self.inner, self.network
        return int((net_width - width) / 2), int((net_height - height) / 2)


def stretch(
    picture: Picture, network: Sides, *, exact: bool = False, out: Array | None = None
) -> tuple[Array, Placement]:
    """Scale to `network` (width, height) whatever that does to the proportions.

    Returns float32 (channels, height, width), in `out` when given. With `exact` the bottom row
    keeps darknet's fault: for about one pair of heights in eighteen rounding makes it black.
    """
    return _placed(picture, Placement(picture.size, network, "stretch"), out, exact)


def letterbox(
    picture: Picture, network: Sides, *, exact: bool = False, out: Array | None = None
) -> tuple[Array, Placement]:
    """Scale to fit into `network` with the proportions kept, and fill up with grey."""
    return _placed(picture, Placement(picture.size, network, "letterbox"), out, exact)


def centre_crop(
    picture: Picture, network: Sides, *, exact: bool = False, out: Array | None = None
) -> tuple[Array, Placement]:
    """Scale the shorter side to the network's width and cut out the middle, as for a classifier.

    Where the scaled picture is too small its border is repeated.
    """
    return _placed(picture, Placement(picture.size, network, "crop"), out, exact)


def fill(pixels: Array, placement: Placement, out: Array, *, exact: bool = False) -> None:
    """Put the scaled pixels, (height, width, channels), where `placement` says into `out`."""
    (width, height), (inner_width, inner_height) = placement.picture, placement.inner
    left, top = placement.offset
    if placement.kind == "letterbox":
        right, bottom = left + inner_width, top + inner_height
        for border in (out[:, :top], out[:, bottom:], out[:, :, :left], out[:, :, right:]):
            border.fill(_GREY)
        if not (inner_width and inner_height):  # extreme proportions: it shrinks to nothing
            return
        out = out[:, top:bottom, left:right]
        left = top = 0
    columns = _axis(width, inner_width, -left, out.shape[2])
    rows = _axis(height, inner_height, -top, out.shape[1], darkens=exact)
    _sample(pixels, columns, rows, out)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The two inputs that each output along one axis mixes, and what of each; arrays are (2, n)."""

    places: Array
    shares: Array


@lru_cache(maxsize=256)
def _axis(extent: int, scaled: int, first: int, count: int, *, darkens: bool = False) -> _Axis:
    """Outputs first .. first + count of an axis of `extent` pixels scaled to `scaled`.

    Places outside the scaled axis repeat its ends.
    """
    last = scaled - 1
    output = np.clip(np.arange(first, first + count), 0, last)
    scale = np.float32(extent - 1) / np.float32(max(last, 1))
    exact = output.astype(np.float32) * scale
    low = exact.astype(np.int64)
    share = exact - low.astype(np.float32)
    shares = np.stack([np.float32(1) - share, share])
    ends = output == last
    if darkens and last > 0:  # darknet: the last row goes without its second part
        shares[1, ends] = 0
    else:
        low[ends] = extent - 1
        shares[:, ends] = [[1], [0]]
    axis = _Axis(np.minimum([low, low + 1], extent - 1), shares)
    axis.places.flags.writeable = axis.shares.flags.writeable = False  # every thread shares them
    return axis


def _sample(pixels: Array, columns: _Axis, rows: _Axis, out: Array) -> None:
    height, width, channels = pixels.shape
    lines = pixels.reshape(height, width * channels)
    places = columns.places[:, None] * channels + np.arange(channels)[:, None]
    for first in range(0, out.shape[1], _BAND):
        band = slice(first, first + _BAND)
        needed, where = np.unique(rows.places[:, band], return_inverse=True)
        pairs = _unit_floats(lines[needed][:, places.ravel()])
        pairs = pairs.reshape(len(needed), *places.shape)
        pairs *= columns.shares[:, None]
        part = pairs[:, 0] + pairs[:, 1]
        pairs = part[where.reshape(2, -1)]
        pairs *= rows.shares[:, band, None, None]
        above, below = pairs.transpose(0, 2, 1, 3)
        np.add(above, below, out=out[:, band])


def _unit_floats(values: Array) -> Array:
    if values.dtype != np.uint8:
        return values
    floats = values.astype(np.float32)
    floats /= np.float32(255)
    return floats


def _placed(
    picture: Picture, placement: Placement, out: Array | None, exact: bool
) -> tuple[Array, Placement]:
    width, height = placement.network
    shape = (picture.channels, height, width)
    if out is None:
        out = np.empty(shape, np.float32)
    assert out.shape == shape, (out.shape, shape)
    assert out.dtype == np.float32, out.dtype
    fill(picture.pixels, placement, out, exact=exact)
    return out, placement
