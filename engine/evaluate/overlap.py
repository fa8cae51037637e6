"""Intersection over union of each detection with each object, as the tools compute it."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array


def in_pixels(found: Array, objects: Array, crowd: Array | None = None) -> Array:
    """Of boxes left, top, width, height in float64, as pycocotools does.

    With a crowd a detection shares what lies inside, whatever the crowd's size.
    """
    fx, fy, fw, fh = found.T[:, :, None]
    ox, oy, ow, oh = objects.T[:, None, :]
    wide = np.minimum(fx + fw, ox + ow) - np.maximum(fx, ox)
    tall = np.minimum(fy + fh, oy + oh) - np.maximum(fy, oy)
    common = np.where((wide > 0) & (tall > 0), wide * tall, 0.0)
    united = fw * fh + ow * oh - common
    if crowd is not None:
        united = np.where(crowd, fw * fh, united)
    with np.errstate(all="ignore"):
        return np.where(common > 0, common / united, 0.0)


def in_parts(found: Array, objects: Array) -> Array:
    """Of boxes x, y (the centre), width, height in float32, as darknet does."""
    fx, fy, fw, fh = found.T[:, :, None]
    ox, oy, ow, oh = objects.T[:, None, :]
    with np.errstate(all="ignore"):  # a broken network's boxes overflow
        wide, tall = _common(fx, fw, ox, ow), _common(fy, fh, oy, oh)
        common = np.where((wide < 0) | (tall < 0), np.float32(0), wide * tall)
        united = fw * fh + ow * oh - common
        ratio = np.where((common == 0) | (united == 0), np.float32(0), common / united)
    return np.where(np.isnan(ratio), np.float32(0), ratio)


def _common(a: Array, a_side: Array, b: Array, b_side: Array) -> Array:
    low = np.maximum(a - a_side / 2, b - b_side / 2)
    return np.asarray(np.minimum(a + a_side / 2, b + b_side / 2) - low)
