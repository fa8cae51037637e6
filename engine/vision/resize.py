"""Resize a picture to the network's input exactly as darknet does: stretch, letterbox or crop.

Darknet interpolates bilinearly with aligned corners, horizontally first, in float32:
    part[y,x] = (1 - dx) * src[y,ix] + dx * src[y,ix+1]     ix + dx = x * (in - 1) / (out - 1)
    out[y,x]  = (1 - dy) * part[iy,x] + dy * part[iy+1,x]   the last column and row are copied
It applies no antialiasing filter when it shrinks a picture.

Here only the rows and columns that contribute are gathered, as bytes; the arithmetic on them is
the same, so the result is bit-identical.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from engine.arrays import Array
from engine.vision.image import Picture

Sides = tuple[int, int]
Fit = Literal["stretch", "letterbox", "crop"]

_GREY = np.float32(0.5)
_BAND = 32  # output rows per pass, so that the intermediate values stay in the cache


@dataclass(frozen=True)
class Placement:
    """The place of a picture in the network's input; sizes are (width, height) in pixels."""

    picture: Sides
    network: Sides
    kind: Fit = "stretch"

    @property
    def inner(self) -> Sides:
        """Return the size of the scaled picture."""
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
        """Return the position of the scaled picture in the network's input, in whole pixels."""
        (width, height), (net_width, net_height) = self.inner, self.network
        return int((net_width - width) / 2), int((net_height - height) / 2)


def stretch(
    picture: Picture, network: Sides, *, exact: bool = False, out: Array | None = None
) -> tuple[Array, Placement]:
    """Scale to `network` (width, height) without keeping the proportions.

    Return float32 (channels, height, width), in `out` if given. With `exact` the bottom row
    reproduces a bug of darknet: for about one pair of heights in eighteen rounding darkens it.
    """
    return _resized(picture, Placement(picture.size, network, "stretch"), out, exact)


def letterbox(
    picture: Picture, network: Sides, *, exact: bool = False, out: Array | None = None
) -> tuple[Array, Placement]:
    """Scale to fit into `network`, keep the proportions and fill the margins with grey."""
    return _resized(picture, Placement(picture.size, network, "letterbox"), out, exact)


def centre_crop(
    picture: Picture, network: Sides, *, exact: bool = False, out: Array | None = None
) -> tuple[Array, Placement]:
    """Scale the shorter side to the network's width and cut out the middle, as for a classifier.

    Where the scaled picture is too small, its border is repeated.
    """
    return _resized(picture, Placement(picture.size, network, "crop"), out, exact)


def scale_into(pixels: Array, placement: Placement, out: Array, *, exact: bool = False) -> None:
    """Scale pixels (height, width, channels) into their place in `out`."""
    (width, height), (inner_width, inner_height) = placement.picture, placement.inner
    left, top = placement.offset
    if placement.kind == "letterbox":
        right, bottom = left + inner_width, top + inner_height
        for border in (out[:, :top], out[:, bottom:], out[:, :, :left], out[:, :, right:]):
            border.fill(_GREY)
        if not (inner_width and inner_height):  # extreme proportions leave no pixel
            return
        out = out[:, top:bottom, left:right]
        left = top = 0
    columns = _axis(width, inner_width, -left, out.shape[2])
    rows = _axis(height, inner_height, -top, out.shape[1], darkens_end=exact)
    _interpolate(pixels, columns, rows, out)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The two inputs of each output along one axis, and their weights; both arrays are (2, n)."""

    indices: Array
    weights: Array


@lru_cache(maxsize=256)
def _axis(extent: int, scaled: int, first: int, count: int, *, darkens_end: bool = False) -> _Axis:
    """Return outputs first .. first + count of an axis of `extent` pixels scaled to `scaled`.

    Outputs beyond the scaled axis repeat its ends.
    """
    last = scaled - 1
    output = np.clip(np.arange(first, first + count), 0, last)
    scale = np.float32(extent - 1) / np.float32(max(last, 1))
    exact = output.astype(np.float32) * scale
    low = exact.astype(np.int64)
    fraction = exact - low.astype(np.float32)
    weights = np.stack([np.float32(1) - fraction, fraction])
    ends = output == last
    if darkens_end and last > 0:  # darknet omits the second term of the last row
        weights[1, ends] = 0
    else:
        low[ends] = extent - 1
        weights[:, ends] = [[1], [0]]
    axis = _Axis(np.minimum([low, low + 1], extent - 1), weights)
    axis.indices.flags.writeable = axis.weights.flags.writeable = False  # threads share the cache
    return axis


def _interpolate(pixels: Array, columns: _Axis, rows: _Axis, out: Array) -> None:
    height, width, channels = pixels.shape
    lines = pixels.reshape(height, width * channels)
    shape = (2, channels, columns.indices.shape[1])
    indices = (columns.indices[:, None] * channels + np.arange(channels)[:, None]).ravel()
    for first in range(0, out.shape[1], _BAND):
        band = slice(first, first + _BAND)
        needed, where = np.unique(rows.indices[:, band], return_inverse=True)
        # "clip" changes nothing here, but it is faster than a check of each index.
        values = lines[needed].take(indices, axis=1, mode="clip")
        pairs = _unit_floats(values).reshape(len(needed), *shape)
        pairs *= columns.weights[:, None]
        part = pairs[:, 0] + pairs[:, 1]
        pairs = part[where.reshape(2, -1)]
        pairs *= rows.weights[:, band, None, None]
        above, below = pairs.transpose(0, 2, 1, 3)
        np.add(above, below, out=out[:, band])


def _unit_floats(values: Array) -> Array:
    if values.dtype != np.uint8:
        return values
    floats = values.astype(np.float32)
    floats /= np.float32(255)
    return floats


def _resized(
    picture: Picture, placement: Placement, out: Array | None, exact: bool
) -> tuple[Array, Placement]:
    width, height = placement.network
    shape = (picture.channels, height, width)
    if out is None:
        out = np.empty(shape, np.float32)
    assert out.shape == shape, (out.shape, shape)
    assert out.dtype == np.float32, out.dtype
    scale_into(picture.pixels, placement, out, exact=exact)
    return out, placement
