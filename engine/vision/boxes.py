"""Boxes of a picture, and the settings of non-maximum suppression (NMS)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from engine.arrays import Array
from engine.errors import InputError, suggest

Kind = Literal["default", "cornersnms", "greedynms", "diounms"]


@dataclass(frozen=True)
class Suppression:
    """Settings of non-maximum suppression; a threshold of None keeps every box."""

    threshold: float | None = 0.45
    kind: Kind = "default"
    beta: float = 0.6
    across_classes: bool = False

    def __post_init__(self) -> None:
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise InputError(f"nms: threshold: expected a finite number, got {self.threshold}")
        if self.kind not in get_args(Kind):
            expected = ", ".join(get_args(Kind))
            hint = suggest(self.kind, get_args(Kind))
            raise InputError(f"nms: kind: expected {expected}, got {self.kind!r}.{hint}")


@dataclass(frozen=True, eq=False)
class Boxes:
    """One row for each box and class with a score above zero, sorted by descending score."""

    xywh: Array  # (n, 4) float32: centre and size relative to the picture, not clipped to it
    scores: Array  # (n,) float32
    class_ids: Array  # (n,) int64
    objectness: Array  # (n,) float32

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: Array | slice) -> Boxes:
        return Boxes(
            self.xywh[rows], self.scores[rows], self.class_ids[rows], self.objectness[rows]
        )

    def select(
        self, classes: Sequence[int] | None = None, max_detections: int | None = None
    ) -> Boxes:
        """Keep only `classes`, and of these at most `max_detections` boxes."""
        chosen = self if classes is None else self.take(np.isin(self.class_ids, classes))
        return chosen if max_detections is None else chosen.take(slice(max_detections))


_NONE = (
    np.empty((0, 4), np.float32),
    np.empty(0, np.float32),
    np.empty(0, np.int64),
    np.empty(0, np.float32),
)
NO_BOXES = Boxes(*_NONE)


class _NotNumbers(Boxes):
    """The empty boxes of a picture whose scores are not finite; take() returns the same object."""

    def take(self, rows: Array | slice) -> Boxes:
        return self


NOT_NUMBERS = _NotNumbers(*_NONE)
