"""Tensor: the arrays of a result, whose elements have the methods of a tensor, too."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.vision.box_array import Values


class Tensor(Values):
    """Values that stay arrays when they are indexed, iterated over or computed with.

    A single value is an array without axes, as in torch. It can be used as a number: in f"{x:.2f}",
    round(), indices and, unlike a tensor, as the key of a dict.
    """

    def cuda(self, *_: Any, **__: Any) -> Tensor:
        return self

    def contiguous(self) -> Tensor:
        return self._made(np.ascontiguousarray(self).reshape(self.shape))

    def double(self) -> Values:
        """Return a copy as float64."""
        return self._as(np.float64)

    def half(self) -> Values:
        """Return a copy as float16."""
        return self._as(np.float16)

    def type(self, dtype: Any) -> Values:
        """Return the values as another type of NumPy's or torch's."""
        return self.to(dtype)

    def unsqueeze(self, dim: builtins.int) -> Tensor:
        return self._made(np.expand_dims(np.asarray(self), dim))

    def _made(self, array: Array) -> Tensor:
        return array.view(Tensor)

    def __getitem__(self, which: Any) -> Any:
        return self._made(np.asarray(super().__getitem__(which)))

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __array_wrap__(
        self, array: Array, context: Any = None, return_scalar: bool | None = None
    ) -> Any:
        return self._made(np.asarray(array))

    def __hash__(self) -> builtins.int:  # type: ignore[override]
        return hash(self.item())

    def __round__(self, digits: builtins.int | None = None) -> Any:
        return round(self.item(), digits)


def tensor(array: Array) -> Tensor:
    """Return an array as a Tensor of the same memory."""
    return np.asarray(array).view(Tensor)
