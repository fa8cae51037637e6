"""Derive results with other boxes or probabilities for the same picture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from engine.arguments import as_array
from engine.compat.ultralytics.boxes import Boxes, rows_of
from engine.errors import InputError
from engine.vision.classification import Classification
from engine.vision.result import Result

_COMMON = ("size", "names", "path", "timing", "frame", "stamp", "picture")


def with_boxes(result: Result | Classification, boxes: Boxes | None) -> Result:
    """Return a result for the same picture with these boxes, or with none."""
    boxes = Boxes(np.empty((0, 6)), result.size[::-1]) if boxes is None else boxes
    if isinstance(result, Result):
        return replace(result, **_columns(result.size, boxes), codes=None, others=None)
    return Result(**_common(result), **_columns(result.size, boxes))


def with_changes(result: Result, boxes: Boxes) -> Result:
    """Return the result with new values of its boxes.

    A box that has moved, perhaps to another row, loses its code, which belonged to the old place.
    """
    if len(boxes) != len(result):
        return with_boxes(result, boxes)
    codes = result.codes
    if codes is not None:
        places = [0, 1, 2, 3, -1]  # edges and class
        moved = np.any(boxes.data[:, places] != rows_of(result)[:, places], axis=1)
        codes = tuple(None if each else code for each, code in zip(moved, codes, strict=True))
    return replace(result, **_columns(result.size, boxes), codes=codes)


def _columns(size: tuple[int, int], boxes: Boxes) -> dict[str, Any]:
    boxes = Boxes(boxes.data, boxes.orig_shape)  # a class may have become negative in place
    first, last = np.hsplit(np.asarray(boxes.xyxy, np.float64), 2)
    return {
        # In float64, so that edges computed from these equal the given ones.
        "xywhn": np.hstack([(first + last) / 2, last - first]) / np.tile(size, 2),
        "scores": np.asarray(boxes.conf).copy(),
        "class_ids": np.asarray(boxes.cls.long()),
        "track_ids": np.asarray(boxes.id.long()) if boxes.is_track else None,
    }


def at_pixels(result: Result, size: tuple[int, int]) -> Result:
    """Return the result with its boxes at the same pixels of a picture of another size."""
    if size == result.size:
        return result
    scale = np.tile(np.array(result.size) / size, 2)
    return replace(result, size=size, xywhn=(result.xywhn * scale).astype(np.float32))


def with_probabilities(result: Result | Classification, probabilities: Any) -> Classification:
    """Return a result for the same picture with these class probabilities."""
    values = as_array("probs", probabilities).astype(np.float32)
    if values.ndim != 1 or not len(values):
        raise InputError(f"probs: expected one number for each class, got the shape {values.shape}")
    return Classification(**_common(result), probabilities=values)


def _common(result: Result | Classification) -> dict[str, Any]:
    return {name: getattr(result, name) for name in _COMMON}
