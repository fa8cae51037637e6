"""Arrays whose items scripts for any OpenCV 4 can read.

Up to OpenCV 4.5.3 getUnconnectedOutLayers(), NMSBoxes() and detect() return columns, so scripts of
that time read `i[0]`; later ones return flat arrays, and scripts read `i`. Items of these arrays
are numbers that can be indexed, so that both kinds of scripts run. Nothing found is an empty tuple
in every OpenCV.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from engine.arrays import Array


class IntItem(int):
    """An integer whose item 0 is itself."""

    def __getitem__(self, index: int) -> int:
        return (int(self),)[index]

    def item(self) -> int:
        return int(self)


class FloatItem(float):
    """A float whose item 0 is itself."""

    def __getitem__(self, index: int) -> float:
        return (float(self),)[index]

    def item(self) -> float:
        return float(self)


class Items(np.ndarray[Any, Any]):
    """A flat array of int32 or float32 whose items can be indexed like rows of a column."""

    @classmethod
    def of(cls, values: Any, kind: type[np.generic]) -> Items:
        return np.asarray(values, kind).reshape(-1).view(cls)

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(index)
        return self._item(value) if isinstance(value, np.generic) else value

    def __iter__(self) -> Iterator[Any]:
        return map(self._item, np.asarray(self).tolist())

    def flatten(self, *_: Any, **__: Any) -> Array:
        return np.array(self)

    def _item(self, value: Any) -> IntItem | FloatItem:
        return IntItem(value) if self.dtype.kind == "i" else FloatItem(value)


Found: TypeAlias = "Items | tuple[()]"


def found(values: Array, kind: type[np.generic]) -> Found:
    """Return what a function has found, as OpenCV does."""
    return Items.of(values, kind) if len(values) else ()
