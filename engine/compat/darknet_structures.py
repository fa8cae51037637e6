"""The ctypes structures of darknet.py as Python objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.arrays import Array
from engine.detector import Detector


class BOX(NamedTuple):
    """A box as centre and size."""

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
    """The boxes that get_network_boxes() returns; do_nms_sort() changes `prob`."""

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
    """A detector and the image that predict_image() stored."""

    detector: Detector
    picture: Array | None = None  # (1, c, h, w) float32 in the size of the network
