"""NumPy scalars with the methods of a tensor: the elements of a result's arrays.

To other libraries they are NumPy scalars; OpenCV refuses zero-dimensional arrays as coordinates.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.vision.box_array import Values

_COMPUTING = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow"),
    *("neg", "pos", "abs"),
)
_KINDS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")


class Number:
    """A mixin for scalars of all dtypes; they are immutable, so a copy is the scalar itself."""

    dtype: Any
    item: Any

    def cpu(self) -> Any:
        return self

    def cuda(self, *_: Any, **__: Any) -> Any:
        return self

    def detach(self) -> Any:
        return self

    def clone(self) -> Any:
        return self

    def contiguous(self) -> Any:
        return self

    def numpy(self, *, force: bool = False) -> Any:
        """Return the number as a plain NumPy scalar."""
        return self.dtype.type(self)

    def to(self, *targets: Any, **named: Any) -> Any:
        """Return the number as another NumPy or torch dtype; a device changes nothing."""
        return number(np.asarray(np.asarray(self).view(Values).to(*targets, **named))[()])

    def type(self, dtype: Any) -> Any:
        return self.to(dtype)

    def int(self) -> Any:
        return self.to(np.int32)

    def long(self) -> Any:
        return self.to(np.int64)

    def half(self) -> Any:
        return self.to(np.float16)

    def float(self) -> Any:
        return self.to(np.float32)

    def double(self) -> Any:
        return self.to(np.float64)

    def unsqueeze(self, dim: builtins.int) -> Any:
        from engine.compat.ultralytics.tensor import tensor  # which needs this module

        return tensor(np.expand_dims(np.asarray(self), dim))

    def dim(self) -> builtins.int:
        return 0

    def numel(self) -> builtins.int:
        return 1

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def __reduce__(self) -> Any:
        return number, (self.dtype.type(self),)

    def __round__(self, digits: builtins.int | None = None) -> Any:
        return round(self.item(), digits)


def _computing(name: str, kind: type[np.generic]) -> Callable[..., Any]:
    """Return a NumPy scalar operation whose result has these methods, too."""
    compute = getattr(kind, name)
    return lambda *operands: number(compute(*operands))


def _class_of(kind: str) -> Any:
    known = np.dtype(kind).type
    # Number is no base class: NumPy takes a second base for the Python type of the value.
    methods = {name: each for name, each in vars(Number).items() if callable(each)}
    operations = {f"__{name}__": _computing(f"__{name}__", known) for name in _COMPUTING}
    return type(known.__name__, (known,), {**methods, **operations, "__module__": __name__})


_CLASSES = {np.dtype(kind): _class_of(kind) for kind in _KINDS}


def number(value: Any) -> Any:
    """Return a NumPy scalar with the methods of a tensor; anything else is unchanged."""
    made = _CLASSES.get(value.dtype) if isinstance(value, np.generic) else None
    return value if made is None else made(value)
