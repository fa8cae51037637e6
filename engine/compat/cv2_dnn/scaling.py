"""OpenCV's resize() with INTER_LINEAR, bit-identical for uint8.

OpenCV resizes uint8 with 11-bit factors, drops bits between the two directions, and averages four
pixels when both sides are halved. The engine's own resize is darknet's.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.errors import InputError

_ONE = 2048  # the factor 1 in OpenCV's fixed-point numbers

_KINDS = (np.uint8, np.uint16, np.int16, np.float32, np.float64)


def resize(
    pixels: Array,
    size: tuple[int, int],
    factor: float | None = None,
    part: tuple[range, range] | None = None,
) -> Array:
    """Return `pixels` (height, width, channels) resized to `size` (width, height), same dtype.

    `factor` is the exact scale, if it differs from the ratio of the sizes. `part` gives the columns
    and rows of the result to compute and return.
    """
    height, width = pixels.shape[:2]
    columns, rows = part or (range(size[0]), range(size[1]))
    kept = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    if size == (width, height):
        return pixels if part is None else pixels[kept]
    if pixels.dtype not in _KINDS:
        kinds = "uint8, uint16, int16, float32 or float64"
        raise InputError(f"image: to be resized: expected {kinds}, got {pixels.dtype}")
    if factor is None and (width, height) == (2 * size[0], 2 * size[1]):
        return _halved(pixels)[kept]
    left, right, along = _taps(width, size[0], factor, columns, drops_shares=True)
    top, bottom, down = _taps(height, size[1], factor, rows)
    first = int(left[0])  # skip columns that are not read, as whole rows are processed below
    pixels, left, right = pixels[:, first : int(right[-1]) + 1], left - first, right - first
    if pixels.dtype == np.uint8:
        return _resize_bytes(pixels, (left, right, along), (top, bottom, down))
    upper, lower = (
        each[:, left] * (1 - along)[:, None] + each[:, right] * along[:, None]
        for each in (pixels[top], pixels[bottom])
    )
    weight = down[:, None, None]
    made = upper * (1 - weight) + lower * weight
    return np.asarray(np.rint(made) if pixels.dtype.kind in "iu" else made, pixels.dtype)


def _taps(
    extent: int, wanted: int, factor: float | None, cells: range, *, drops_shares: bool = False
) -> tuple[Array, Array, Array]:
    """Return the two source cells of each of `cells`, and the weight of the second.

    At the edges both are the same cell; there OpenCV drops the weight in one direction only, which
    affects the truncated bits.
    """
    scale = 1 / (wanted / extent if factor is None else factor)  # rounded as in OpenCV
    centre = ((np.arange(cells.start, cells.stop) + 0.5) * scale - 0.5).astype(np.float32)
    first = np.floor(centre).astype(np.int64)
    share = centre - first.astype(np.float32)
    if drops_shares:
        share[(first < 0) | (first >= extent - 1)] = 0
    return first.clip(0, extent - 1), (first + 1).clip(0, extent - 1), share


def _resize_bytes(
    pixels: Array, along: tuple[Array, Array, Array], down: tuple[Array, Array, Array]
) -> Array:
    left, right, share = along
    factors = _fixed(1 - share)[:, None], _fixed(share)[:, None]
    upper, lower = (
        (rows[:, left] * factors[0] + rows[:, right] * factors[1]) >> 4
        for rows in (pixels[down[0]].astype(np.int32), pixels[down[1]].astype(np.int32))
    )
    first, second = _fixed(1 - down[2])[:, None, None], _fixed(down[2])[:, None, None]
    sums: Array = ((upper * first) >> 16) + ((lower * second) >> 16)
    return np.asarray(sums + 2 >> 2, np.uint8)


def _fixed(shares: Array) -> Array:
    return np.rint(shares * np.float32(_ONE)).astype(np.int32)


def _halved(pixels: Array) -> Array:
    height, width, channels = pixels.shape
    quads = pixels.reshape(height // 2, 2, width // 2, 2, channels)
    if pixels.dtype.kind in "iu":
        return np.asarray(quads.sum(axis=(1, 3), dtype=np.int32) + 2 >> 2, pixels.dtype)
    return np.asarray(quads.sum(axis=(1, 3)) * pixels.dtype.type(0.25))
