"""What the evaluation works on, picture by picture: objects that are there, boxes found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.vision.result import Result


@dataclass(frozen=True, eq=False)
class Objects:
    """What is in a picture.

    An `optional` object need not be found and does not count when it is: COCO's crowds, VOC's
    difficult objects.
    """

    boxes: Array  # (n, 4) float64: left, top, width, height in pixels
    class_ids: Array  # (n,) int64
    areas: Array  # (n,) float64, of the outline where that is known
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
class Found:
    """What a detector says is in a picture, in its order."""

    boxes: Array  # (n, 4) float64: left, top, width, height in pixels
    scores: Array  # (n,) float64
    class_ids: Array  # (n,) int64

    @classmethod
    def of(
        cls, boxes: Sequence[Sequence[float]], scores: Sequence[float], class_ids: Sequence[int]
    ) -> Found:
        return cls(
            np.asarray(boxes, np.float64).reshape(-1, 4),
            np.asarray(scores, np.float64),
            np.asarray(class_ids, np.int64),
        )

    @classmethod
    def in_result(cls, result: Result) -> Found:
        """The boxes of a Result, without the rounding of its pixels to float32."""
        sides = np.tile(np.asarray(result.size, np.float64), 2)
        boxes = result.xywhn.astype(np.float64) * sides
        boxes[:, :2] -= boxes[:, 2:] / 2
        return cls(boxes, result.scores.astype(np.float64), result.class_ids.astype(np.int64))

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: Array) -> Found:
        return Found(self.boxes[rows], self.scores[rows], self.class_ids[rows])


@dataclass(frozen=True, eq=False)
class Example:
    """A picture: what is there and what was found."""

    image_id: int | str
    size: tuple[int, int]  # width, height
    objects: Objects
    found: Found
    path: str | None = None


@dataclass(frozen=True, eq=False)
class Scene:
    """One class in one picture; `places` number the detections over all pictures and classes."""

    size: tuple[int, int]
    objects: Objects
    found: Found
    places: Array  # (len(found),) int64


def by_class(examples: Sequence[Example], classes: int) -> list[list[Scene]]:
    """The scenes of each class, in the order of the pictures; none where the class is absent."""
    scenes: list[list[Scene]] = [[] for _ in range(classes)]
    first_place = 0
    for example in examples:
        for class_id in _present(example, classes):
            rows = np.flatnonzero(example.found.class_ids == class_id)
            scenes[class_id].append(
                Scene(
                    example.size,
                    example.objects.take(np.flatnonzero(example.objects.class_ids == class_id)),
                    example.found.take(rows),
                    first_place + rows,
                )
            )
        first_place += len(example.found)
    return scenes


def _present(example: Example, classes: int) -> Iterator[int]:
    ids = np.union1d(example.objects.class_ids, example.found.class_ids)
    return (class_id for class_id in ids.tolist() if 0 <= class_id < classes)
