"""The ctypes structures of darknet.py as Python objects; as there, fields may be omitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from engine.arrays import Array
from engine.compat.plain_results import PlainResults
from engine.detector import Detector
from engine.errors import InputError


class Numbers(PlainResults):
    """A row of float32 that reads like a ctypes pointer.

    An item is a Python float, which json can write; a slice is a list of them.
    """

    def __getitem__(self, which: Any) -> Any:
        is_row = self.ndim == 1
        if is_row and isinstance(which, int):
            return self.item(which)  # faster than the NumPy scalar below
        found = np.asarray(self)[which]
        return found.tolist() if is_row and isinstance(which, (slice, np.integer)) else found

    def __setitem__(self, which: Any, values: Any) -> None:
        np.asarray(self)[which] = values  # NumPy's own method calls __getitem__()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist() if self.ndim == 1 else np.asarray(self))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Pass a plain array to NumPy's functions, since they compute with slices."""
        plain = (np.asarray(each) if isinstance(each, Numbers) else each for each in args)
        return super().__array_function__(func, types, tuple(plain), kwargs)


def _side(place: int) -> Any:
    """Return a property for one number of a box."""

    def get(box: BOX) -> float:
        return float(box.item(place))

    def put(box: BOX, value: float) -> None:
        box[place] = value

    return property(get, put)


class BOX(Numbers):
    """A box as centre and size, with writable fields, that also reads as a row of four numbers."""

    def __new__(cls, x: float = 0.0, y: float = 0.0, w: float = 0.0, h: float = 0.0) -> BOX:
        return np.array((x, y, w, h), np.float32).view(cls)

    x, y, w, h = map(_side, range(4))

    def __eq__(self, other: object) -> Any:
        return np.array_equal(np.asarray(self), cast("Any", other))

    def __ne__(self, other: object) -> Any:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "BOX(x={}, y={}, w={}, h={})".format(*self)


@dataclass(eq=False)
class IMAGE:
    w: int = 0
    h: int = 0
    c: int = 0
    data: Any = field(
        default=None, repr=False
    )  # c * h * w values of float32 in 0..1, or a ctypes pointer

    def rows(self, count: int, sides: tuple[int, int, int]) -> Array:
        """Return a copy of `count` images with these sides."""
        values = self.numbers(count * int(np.prod(sides)))
        return np.array(values, np.float32).reshape(count, *sides)

    def numbers(self, size: int) -> Array:
        """Return the first `size` numbers; an array must have exactly that many."""
        values = self.data
        if values is None:
            raise InputError(f"image: expected {size} numbers, got none")
        if not isinstance(values, np.ndarray):
            owner = getattr(values, "_arr", None)  # set by ndarray.ctypes.data_as()
            if owner is not None and owner.size < size:
                raise InputError(f"image: expected {size} numbers, got {owner.size}")
            values = np.ctypeslib.as_array(values, (size,))
        if values.size != size:
            raise InputError(f"image: expected {size} numbers, got {values.size}")
        return np.asarray(values)


class Name(str):
    """A class name that can be decoded or compared with bytes, as scripts for darknet.py do."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str(self) == (other.decode(errors="replace") if isinstance(other, bytes) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self)


@dataclass
class METADATA:
    classes: int = 0
    names: list[Name] = field(default_factory=list)


class DETECTION:
    """One box with a probability for each class; writing to it changes its Detections."""

    __slots__ = ("_bbox", "_objectness", "_prob", "_sort_class")

    # Detection layers of darknet leave these fields empty.
    mask = embeddings = None
    embedding_size = track_id = 0
    sim = 0.0

    def __init__(
        self,
        bbox: BOX | None = None,
        prob: Array | None = None,
        objectness: Any = 0.0,
        sort_class: Any = 0,
    ) -> None:
        self._bbox = BOX() if bbox is None else bbox
        self._prob = (np.empty(0, np.float32) if prob is None else prob).view(Numbers)
        self._objectness: Array = np.asarray(objectness, np.float32)  # a single number
        self._sort_class: Array = np.asarray(sort_class, np.int32)

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Raise an error that names the module whose DETECTION lacks a field, such as `uc`."""
            raise AttributeError(
                f"{name}: DETECTION of engine.compat.darknet has no such attribute"
            )

    @property
    def bbox(self) -> BOX:
        return self._bbox

    @bbox.setter
    def bbox(self, box: BOX) -> None:
        self._bbox[:] = box

    @property
    def prob(self) -> Numbers:
        return self._prob

    @property
    def objectness(self) -> float:
        return float(self._objectness)

    @objectness.setter
    def objectness(self, value: float) -> None:
        self._objectness[...] = value

    @property
    def sort_class(self) -> int:
        """The class by which NMS last sorted the boxes, or -1 for objectness."""
        return int(self._sort_class)

    @sort_class.setter
    def sort_class(self, number: int) -> None:
        self._sort_class[...] = number

    @property
    def classes(self) -> int:
        return len(self.prob)

    @property
    def best_class_idx(self) -> int:
        """The class with the highest probability, or -1 if NMS has suppressed all."""
        return int(self.prob.argmax()) if (self.prob > 0).any() else -1

    def __repr__(self) -> str:
        values = f"prob={self.prob!r}, objectness={self.objectness!r}"
        return f"DETECTION(bbox={self.bbox!r}, {values})"


@dataclass(frozen=True, eq=False)
class Detections:
    """The boxes that get_network_boxes() returns; NMS sorts them and changes `prob`."""

    xywh: Array = field(default_factory=lambda: np.empty((0, 4), np.float32))
    prob: Array = field(default_factory=lambda: np.empty((0, 0), np.float32))  # (n, classes)
    objectness: Array = field(default_factory=lambda: np.empty(0, np.float32))
    sort_class: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sort_class", np.zeros(len(self.xywh), np.int32))

    def __len__(self) -> int:
        return len(self.xywh)

    def __getitem__(self, row: int) -> DETECTION:
        numbers = (self.objectness[row, ...], self.sort_class[row, ...])
        return DETECTION(self.xywh[row].view(BOX), self.prob[row], *numbers)

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
