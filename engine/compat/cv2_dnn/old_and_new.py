"""Arrays whose items scripts for any OpenCV 4 release can read.

Up to OpenCV 4.5.3 getUnconnectedOutLayers(), NMSBoxes() and detect() return columns, so scripts of
that time read `i[0]`; later ones return flat arrays, and scripts read `i`. Items of these arrays
are NumPy scalars that can be indexed, so that both kinds of scripts run. If nothing is found, every
OpenCV returns an empty tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from engine.arrays import Array
from engine.compat.plain_results import PlainResults


class IntItem(np.int32):
    """A number of NumPy's whose item 0 is itself."""

    def __getitem__(self, index: Any) -> Any:
        return _item_of(np.int32(self), index)

    def __repr__(self) -> str:
        return repr(np.int32(self))


class FloatItem(np.float32):
    """A number of NumPy's whose item 0 is itself."""

    def __getitem__(self, index: Any) -> Any:
        return _item_of(np.float32(self), index)

    def __repr__(self) -> str:
        return repr(np.float32(self))


def _item_of(value: np.generic, index: Any) -> Any:
    """Index a scalar like a row of a column; NumPy itself indexes it with () and `...`."""
    is_numpys = index is ... or isinstance(index, tuple)
    return np.asarray(value)[index] if is_numpys else np.asarray([value])[index]


_ITEMS: dict[type, type[np.generic]] = {np.int32: IntItem, np.float32: FloatItem}


class Items(PlainResults):
    """A flat array of int32 or float32 whose items can be indexed like rows of a column.

    A flat slice has the same type. Computing with it gives plain NumPy arrays or numbers.
    """

    @classmethod
    def of(cls, values: Any, kind: type[np.generic]) -> Items:
        return np.asarray(values, kind).reshape(-1).view(cls)

    def __getitem__(self, index: Any) -> Any:
        value = np.asarray(self)[index]
        if isinstance(value, np.ndarray):
            return value.view(Items) if self.ndim == value.ndim == 1 else value
        return _item(value)

    def __iter__(self) -> Iterator[Any]:
        return map(_item, np.asarray(self))


def _item(value: Any) -> Any:
    kind = _ITEMS.get(type(value))
    return kind(value) if kind else value


Found: TypeAlias = "Items | tuple[()]"


def found(values: Array, kind: type[np.generic]) -> Found:
    """Return the results of a function in OpenCV's form."""
    return Items.of(values, kind) if len(values) else ()
