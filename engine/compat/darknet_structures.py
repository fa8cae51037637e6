"""The ctypes structures of darknet.py as Python objects; as there, fields may be left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from engine.arrays import Array
from engine.compat.plain_results import PlainResults
from engine.detector import Detector
from engine.errors import InputError


class BOX(NamedTuple):
    """A box as centre and size."""

    x: float = 0.0
    y: float = 0.0
    w: float = 0.0
    h: float = 0.0


class Numbers(PlainResults):
    """A row of float32 that is read as through a pointer of ctypes.

    An item is a float of Python, which json can write, and a slice is a list of them.
    """

    def __getitem__(self, which: Any) -> Any:
        is_row = self.ndim == 1
        if is_row and isinstance(which, int):
            return self.item(which)  # faster than the number of NumPy's that is found below
        found = np.asarray(self)[which]
        return found.tolist() if is_row and isinstance(which, (slice, np.integer)) else found

    def __setitem__(self, which: Any, values: Any) -> None:
        np.asarray(self)[which] = values  # NumPy's own method calls __getitem__()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist() if self.ndim == 1 else np.asarray(self))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Give functions of NumPy a plain array, since they calculate with slices."""
        plain = (np.asarray(each) if isinstance(each, Numbers) else each for each in args)
        return super().__array_function__(func, types, tuple(plain), kwargs)


@dataclass(eq=False)
class IMAGE:
    w: int = 0
    h: int = 0
    c: int = 0
    data: Any = field(
        default=None, repr=False
    )  # c * h * w values of float32 in 0..1, or a ctypes pointer

    def rows(self, count: int, sides: tuple[int, int, int]) -> Array:
        """Return a copy of `count` images of these sides."""
        values = self.numbers(count * int(np.prod(sides)))
        return np.array(values, np.float32).reshape(count, *sides)

    def numbers(self, size: int) -> Array:
        """Return the first numbers, which a pointer must have, and an array has and no more."""
        values = self.data
        if values is None:
            raise InputError(f"image: expected {size} numbers, got none")
        if not isinstance(values, np.ndarray):
            owner = getattr(values, "_arr", None)  # that of ndarray.ctypes.data_as()
            if owner is not None and owner.size < size:
                raise InputError(f"image: expected {size} numbers, got {owner.size}")
            values = np.ctypeslib.as_array(values, (size,))
        if values.size != size:
            raise InputError(f"image: expected {size} numbers, got {values.size}")
        return np.asarray(values)


class Name(str):
    """A class name; scripts for darknet.py decode theirs, which are bytes."""

    __slots__ = ()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self)


@dataclass
class METADATA:
    classes: int = 0
    names: list[Name] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class DETECTION:
    """One box with a probability for each class."""

    bbox: BOX = field(default_factory=BOX)
    prob: Numbers = field(default_factory=lambda: np.empty(0, np.float32).view(Numbers))
    objectness: float = 0.0

    @property
    def classes(self) -> int:
        return len(self.prob)

    @property
    def best_class_idx(self) -> int:
        """The class with the highest probability, or -1 if NMS has suppressed all."""
        return int(self.prob.argmax()) if (self.prob > 0).any() else -1


@dataclass(frozen=True, eq=False)
class Detections:
    """The boxes that get_network_boxes() returns; NMS sorts them and changes `prob`."""

    xywh: Array = field(default_factory=lambda: np.empty((0, 4), np.float32))
    prob: Array = field(default_factory=lambda: np.empty((0, 0), np.float32))  # (n, classes)
    objectness: Array = field(default_factory=lambda: np.empty(0, np.float32))

    def __len__(self) -> int:
        return len(self.xywh)

    def __getitem__(self, row: int) -> DETECTION:
        box = BOX(*self.xywh[row].tolist())
        return DETECTION(box, self.prob[row].view(Numbers), float(self.objectness[row]))

    def __iter__(self) -> Iterator[DETECTION]:
        return (self[row] for row in range(len(self)))


@dataclass(frozen=True, eq=False)
class DETNUMPAIR:
    """The boxes of one image of network_predict_batch()."""

    num: int = 0
    dets: Detections = field(default_factory=Detections)


@dataclass(eq=False)
class Network:
    """A detector and the image that predict_image() stored."""

    detector: Detector
    picture: Array | None = None  # (1, c, h, w) float32 in the size of the network
