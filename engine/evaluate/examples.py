"""The input of an evaluation: the objects in each picture and the detections of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.arrays import Array
from engine.vision.result import Result


@dataclass(frozen=True, eq=False)
class Objects:
    """The labelled objects in a picture.

    An `optional` object (a crowd of COCO, a difficult object of VOC) need not be found, and
    detections of it do not count.
    """

    boxes: Array  # (n, 4) float64: left, top, width, height in pixels
    class_ids: Array  # (n,) int64
    areas: Array  # (n,) float64, area of the outline if known
    optional: Array  # (n,) bool

    @classmethod
    def of(
        cls,
        boxes: Sequence[Sequence[float]],
        class_ids: Sequence[int],
        *,
        areas: Sequence[float] | None = None,
        optional: Sequence[bool] | None = None,
    ) -> Objects:
        rows = np.asarray(boxes, np.float64).reshape(-1, 4)
        return cls(
            rows,
            np.asarray(class_ids, np.int64),
            rows[:, 2] * rows[:, 3] if areas is None else np.asarray(areas, np.float64),
            np.zeros(len(rows), bool) if optional is None else np.asarray(optional, bool),
        )

    def __len__(self) -> int:
        return len(self.boxes)

    def take(self, rows: Array) -> Objects:
        return Objects(
            self.boxes[rows], self.class_ids[rows], self.areas[rows], self.optional[rows]
        )


@dataclass(frozen=True, eq=False)
class Detections:
    """The detections in a picture, in the detector's order."""

    boxes: Array  # (n, 4) float64: left, top, width, height in pixels
    scores: Array  # (n,) float64
    class_ids: Array  # (n,) int64

    @classmethod
    def of(
        cls, boxes: Sequence[Sequence[float]], scores: Sequence[float], class_ids: Sequence[int]
    ) -> Detections:
        return cls(
            np.asarray(boxes, np.float64).reshape(-1, 4),
            np.asarray(scores, np.float64),
            np.asarray(class_ids, np.int64),
        )

    @classmethod
    def from_result(cls, result: Result) -> Detections:
        """Return the boxes of a Result, without rounding pixels to float32."""
        return cls.from_relative(result.xywhn, result.scores, result.class_ids, result.size)

    @classmethod
    def from_relative(
        cls, xywhn: Array, scores: Array, class_ids: Array, size: tuple[int, int]
    ) -> Detections:
        """Return boxes that are given by their centre and size relative to the picture."""
        boxes = xywhn.astype(np.float64) * np.tile(np.asarray(size, np.float64), 2)
        boxes[:, :2] -= boxes[:, 2:] / 2
        return cls(boxes, scores.astype(np.float64), class_ids.astype(np.int64))

    def __len__(self) -> int:
        return len(self.scores)

    def cut_at_edges(self, size: tuple[int, int]) -> Detections:
        """Return the boxes, clipped to the picture."""
        first, last = self.boxes[:, :2], self.boxes[:, :2] + self.boxes[:, 2:]
        first, last = np.clip(first, 0, size), np.clip(last, 0, size)
        return replace(self, boxes=np.hstack([first, last - first]))

    def take(self, rows: Array) -> Detections:
        return Detections(self.boxes[rows], self.scores[rows], self.class_ids[rows])


@dataclass(frozen=True, eq=False)
class Example:
    """A picture with its objects and detections."""

    image_id: int | str
    size: tuple[int, int]  # width, height
    objects: Objects
    detections: Detections
    path: str | None = None

    def above(self, min_score: float) -> Example:
        """Return the example with only the detections that exceed this score."""
        kept = np.flatnonzero(self.detections.scores > min_score)
        return replace(self, detections=self.detections.take(kept))

    def cut_at_edges(self) -> Example:
        """Return the example with boxes clipped to the picture."""
        return replace(self, detections=self.detections.cut_at_edges(self.size))


@dataclass(frozen=True, eq=False)
class ClassExample:
    """One class in one picture; `indices` number the detections over all pictures and classes."""

    size: tuple[int, int]
    objects: Objects
    detections: Detections
    indices: Array  # (len(detections),) int64


def split_by_class(examples: Sequence[Example], classes: int) -> list[list[ClassExample]]:
    """Return for each class the pictures in which it occurs, in their order."""
    split: list[list[ClassExample]] = [[] for _ in range(classes)]
    first_index = 0
    for example in examples:
        for class_id in _class_ids_in(example, classes):
            rows = np.flatnonzero(example.detections.class_ids == class_id)
            split[class_id].append(
                ClassExample(
                    example.size,
                    example.objects.take(np.flatnonzero(example.objects.class_ids == class_id)),
                    example.detections.take(rows),
                    first_index + rows,
                )
            )
        first_index += len(example.detections)
    return split


def _class_ids_in(example: Example, classes: int) -> Iterator[int]:
    ids = np.union1d(example.objects.class_ids, example.detections.class_ids)
    return (class_id for class_id in ids.tolist() if 0 <= class_id < classes)
