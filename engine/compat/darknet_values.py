"""The structures of darknet.py, as Python objects: nothing has to be freed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from engine.arrays import Array
from engine.detector import Detector


class BOX(NamedTuple):
    """Centre and size."""

    x: float
    y: float
    w: float
    h: float


@dataclass(eq=False)
class IMAGE:
    w: int
    h: int
    c: int
    data: Array = field(repr=False)  # (c, h, w) float32 in 0..1


@dataclass(frozen=True)
class METADATA:
    classes: int
    names: list[str]


@dataclass(frozen=True, eq=False)
class DETECTION:
    """One box with a probability for each class."""

    bbox: BOX
    prob: Array
    objectness: float

    @property
    def classes(self) -> int:
        return len(self.prob)


@dataclass(frozen=True, eq=False)
class Detections:
    """What get_network_boxes finds; do_nms_sort changes `prob`."""

    xywh: Array  # (n, 4)
    prob: Array  # (n, classes)
    objectness: Array  # (n,)

    def __len__(self) -> int:
        return len(self.xywh)

    def __getitem__(self, row: int) -> DETECTION:
        box = BOX(*self.xywh[row].tolist())
        return DETECTION(box, self.prob[row], float(self.objectness[row]))

    def __iter__(self) -> Iterator[DETECTION]:
        return (self[row] for row in range(len(self)))


@dataclass(eq=False)
class Network:
    """A detector, and the picture that predict_image() was given."""

    detector: Detector
    picture: Array | None = None  # (1, c, h, w) float32, of the network's size


def zeros(width: int, height: int, channels: int) -> IMAGE:
    return IMAGE(width, height, channels, np.zeros((channels, height, width), np.float32))
