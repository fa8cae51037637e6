"""Intersection over union of each detection with each object, in the two ways that tools use."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array


def iou_ltwh(found: Array, objects: Array, crowd: Array | None = None) -> Array:
    """Return the IoU of boxes (left, top, width, height) in float64, as pycocotools does.

    For a crowd the denominator is the area of the detection alone.
    """
    fx, fy, fw, fh = found.T[:, :, None]
    ox, oy, ow, oh = objects.T[:, None, :]
    wide = np.minimum(fx + fw, ox + ow) - np.maximum(fx, ox)
    tall = np.minimum(fy + fh, oy + oh) - np.maximum(fy, oy)
    intersection = np.where((wide > 0) & (tall > 0), wide * tall, 0.0)
    union = fw * fh + ow * oh - intersection
    if crowd is not None:
        union = np.where(crowd, fw * fh, union)
    with np.errstate(all="ignore"):
        return np.where(intersection > 0, intersection / union, 0.0)


def iou_xywh(found: Array, objects: Array) -> Array:
    """Return the IoU of boxes (centre x, centre y, width, height) in float32, as darknet does."""
    fx, fy, fw, fh = found.T[:, :, None]
    ox, oy, ow, oh = objects.T[:, None, :]
    with np.errstate(all="ignore"):  # boxes of a broken network overflow
        wide, tall = _intersect(fx, fw, ox, ow), _intersect(fy, fh, oy, oh)
        intersection = np.where((wide < 0) | (tall < 0), np.float32(0), wide * tall)
        union = fw * fh + ow * oh - intersection
        iou = np.where((intersection == 0) | (union == 0), np.float32(0), intersection / union)
    return np.where(np.isnan(iou), np.float32(0), iou)


def _intersect(a: Array, a_side: Array, b: Array, b_side: Array) -> Array:
    low = np.maximum(a - a_side / 2, b - b_side / 2)
    return np.asarray(np.minimum(a + a_side / 2, b + b_side / 2) - low)
