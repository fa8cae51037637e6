"""An array whose items or slices are not those of NumPy, while computing with it is as usual."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.arrays import Array


class PlainResults(np.ndarray[Any, Any]):
    """An array of its own kind; what is computed from it is an array of NumPy's or a number."""

    __array_priority__ = -1.0  # np.concatenate() of these gives a plain array

    def __array_wrap__(
        self, array: Array, context: Any = None, return_scalar: bool | None = None
    ) -> Any:
        """Return an array that was changed in place, or what an operation computes.

        NumPy 1 does not say whether it wants a number; there a single value becomes one.
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
