"""Tensor: the arrays of a result, whose methods are those of a tensor where NumPy's differ."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from engine.arrays import Array
from engine.compat.ultralytics.number import number
from engine.vision.box_array import Values

_OF_NUMPY = ("axis", "dtype", "out", "ddof", "kind", "order")  # how NumPy's functions call methods


class Extreme(NamedTuple):
    """The result of max() and min() along an axis, as in torch."""

    values: Any
    indices: Any


class Tensor(Values):
    """Values that stay Tensors when they are indexed, iterated over or computed with.

    A single value is a number with the methods of a tensor. NumPy's own functions, which name their
    axes, get what they expect of an array.
    """

    def cuda(self, *_: Any, **__: Any) -> Tensor:
        return self

    def contiguous(self) -> Any:
        return self._made(np.ascontiguousarray(self).reshape(self.shape))

    def double(self) -> Any:
        """Return a copy as float64."""
        return self._as(np.float64)

    def half(self) -> Any:
        """Return a copy as float16."""
        return self._as(np.float16)

    def bool(self) -> Any:
        return self._as(np.bool_)

    def type(self, dtype: Any) -> Any:
        """Return the values as another type of NumPy's or torch's."""
        return self.to(dtype)

    # ------------------------------------------------------------ shapes

    def unsqueeze(self, dim: builtins.int) -> Any:
        return self._made(np.expand_dims(np.asarray(self), dim))

    def t(self) -> Any:
        return self.T

    def permute(self, *dims: Any) -> Any:
        return super().transpose(*dims)

    def transpose(self, *axes: Any) -> Any:
        """Exchange two axes, as torch does; other arguments are those of NumPy."""
        return self.swapaxes(*axes) if len(axes) == 2 else super().transpose(*axes)

    def repeat(self, *sizes: Any, **named: Any) -> Any:
        """Repeat the whole array, as torch does; with `axis` each element, as NumPy does."""
        if named:
            return super().repeat(*sizes, **named)
        return self._made(np.tile(np.asarray(self), sizes))

    # ------------------------------------------------------------ values

    def max(self, *options: Any, **named: Any) -> Any:
        """Return the largest value, or along an axis values and indices, as torch does."""
        return self._extreme("max", options, named)

    def min(self, *options: Any, **named: Any) -> Any:
        """Return the smallest value, or along an axis values and indices, as torch does."""
        return self._extreme("min", options, named)

    def _extreme(self, name: str, options: tuple[Any, ...], named: dict[str, Any]) -> Any:
        plain = np.asarray(self)
        if not options and "dim" not in named:
            return self._made(getattr(plain, name)(**named))
        if isinstance(other := (*options, named.get("dim"))[0], np.ndarray):
            return self._made(getattr(np, f"{name}imum")(plain, other))
        shape = {"axis": other, "keepdims": bool((*options[1:], named.get("keepdim", False))[0])}
        found = (getattr(plain, f"{kind}{name}")(**shape) for kind in ("", "arg"))
        return Extreme(*map(self._made, found))

    def argmax(self, *options: Any, **named: Any) -> Any:
        return self._made(np.asarray(self).argmax(*options, **_for_numpy(named)))

    def argmin(self, *options: Any, **named: Any) -> Any:
        return self._made(np.asarray(self).argmin(*options, **_for_numpy(named)))

    def sum(self, *options: Any, **named: Any) -> Any:
        return self._made(np.asarray(self).sum(*options, **_for_numpy(named)))

    def mean(self, *options: Any, **named: Any) -> Any:
        return self._made(np.asarray(self).mean(*options, **_for_numpy(named)))

    def any(self, *options: Any, **named: Any) -> Any:
        return self._made(np.asarray(self).any(*options, **_for_numpy(named)))

    def all(self, *options: Any, **named: Any) -> Any:
        return self._made(np.asarray(self).all(*options, **_for_numpy(named)))

    def std(self, *options: Any, **named: Any) -> Any:
        """Return the deviation of a sample, as torch does, or what NumPy's function asks for."""
        return self._made(np.asarray(self).std(*options, **_of_sample(named)))

    def var(self, *options: Any, **named: Any) -> Any:
        """Return the variance of a sample, as torch does, or what NumPy's function asks for."""
        return self._made(np.asarray(self).var(*options, **_of_sample(named)))

    def abs(self) -> Any:
        return self._made(np.abs(np.asarray(self)))

    def clamp(self, min: Any = None, max: Any = None) -> Any:
        return self._made(np.asarray(self).clip(min, max))

    def sort(self, *options: Any, descending: builtins.bool | None = None, **named: Any) -> Any:
        """Return values and indices, as torch does; NumPy's function sorts in place."""
        if descending is None and any(name in named for name in _OF_NUMPY):
            return super().sort(*options, **named)
        options, descending = _direction(options, descending)
        return super().sort(*options, descending=bool(descending), **named)

    def argsort(self, *options: Any, descending: builtins.bool | None = None, **named: Any) -> Any:
        options, descending = _direction(options, descending)
        return super().argsort(*options, descending=bool(descending), **named)

    # ------------------------------------------------------------ elements

    def _made(self, array: Any) -> Any:
        return array.view(Tensor) if np.ndim(array) else number(np.asarray(array)[()])

    def __getitem__(self, which: Any) -> Any:
        return self._made(np.asarray(self)[which])

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __array_wrap__(
        self, array: Array, context: Any = None, return_scalar: builtins.bool | None = None
    ) -> Any:
        return self._made(np.asarray(array))


def tensor(array: Array) -> Tensor:
    """Return an array as a Tensor of the same memory."""
    return np.asarray(array).view(Tensor)


def _for_numpy(named: dict[str, Any]) -> dict[str, Any]:
    """Return torch's `dim` and `keepdim` by NumPy's names."""
    names = {"dim": "axis", "keepdim": "keepdims"}
    return {names.get(name, name): value for name, value in named.items()}


def _of_sample(named: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with torch's default of `correction`, unless NumPy's function calls."""
    if any(name in named for name in _OF_NUMPY):
        return named
    unbiased = named.pop("unbiased", True)
    return {**_for_numpy(named), "ddof": named.pop("correction", int(unbiased))}


def _direction(
    options: tuple[Any, ...], descending: bool | None
) -> tuple[tuple[Any, ...], bool | None]:
    """Return the options without torch's second one, which is `descending`."""
    if len(options) > 1 and isinstance(options[1], bool):
        return options[:1], options[1]
    return options, descending
