"""An array type with its own items or slices, while computing with it gives plain results."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.arrays import Array


class PlainResults(np.ndarray[Any, Any]):
    """An array subclass; computing with it gives plain NumPy arrays or numbers."""

    __array_priority__ = -1.0  # np.concatenate() of these gives a plain array

    def __array_wrap__(
        self, array: Array, context: Any = None, return_scalar: bool | None = None
    ) -> Any:
        """Return an array that was changed in place, or the plain result of an operation.

        NumPy 1 does not say whether it expects a scalar; there a single value becomes one.
        """
        plain = np.asarray(array)
        if array is self or plain.ndim:
            return self if array is self else plain
        return plain if return_scalar is False else plain[()]

    def flatten(self, *_: Any, **__: Any) -> Array:
        return np.array(self)

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()
