"""Tensor: the arrays of a result, with the methods of a torch tensor."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from engine.arrays import Array
from engine.compat.ultralytics.device import DeviceName
from engine.compat.ultralytics.number import number
from engine.errors import InputError
from engine.vision.box_array import Values


def _reduction(name: str) -> Any:
    """Return a NumPy array method that also accepts torch's argument names."""

    def reduce(values: Tensor, *options: Any, **named: Any) -> Any:
        return values._made(getattr(np.asarray(values), name)(*options, **_for_numpy(named)))

    return reduce


def _spread(name: str) -> Any:
    """Return std() or var() as in NumPy, unless torch's `unbiased` is given."""

    def spread(values: Tensor, *options: Any, unbiased: bool | None = None, **named: Any) -> Any:
        if options and isinstance(options[-1], bool):  # torch's last positional argument
            options, unbiased = options[:-1], options[-1]
        if unbiased is not None:
            named["ddof"] = int(unbiased)
        return _reduction(name)(values, *options, **named)

    return spread


def _in_place(compute: Callable[..., Any]) -> Any:
    """Return a method that applies `compute` in place.

    As in torch, dtype and shape are kept: floats do not become integers.
    """

    def change(values: Tensor, *options: Any, **named: Any) -> Tensor:
        array = np.asarray(values)
        np.copyto(array, compute(array, *options, **named), casting="same_kind")
        return values

    return change


def _divided(array: Array, other: Any, *, rounding_mode: str | None = None) -> Any:
    rounding = {None: np.positive, "floor": np.floor, "trunc": np.trunc}.get(rounding_mode)
    if rounding is None:
        known = "None, floor or trunc"
        raise InputError(f"rounding_mode: expected {known}, got {rounding_mode!r}")
    quotient = rounding(np.true_divide(array, other))
    return quotient if rounding_mode is None else quotient.astype(array.dtype)


class Selected(NamedTuple):
    """The result of max(), min(), sort() and topk() along `dim`, as in torch."""

    values: Any
    indices: Any


class Size(int):
    """The number of values; called as torch's method it returns the shape, or one side of it."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]


class Tensor(Values):
    """Values that stay Tensors when they are indexed, iterated over or computed with.

    A single value is a scalar with the methods of a tensor. Because NumPy and pandas call array
    methods, too, these behave like torch's only with arguments that NumPy's do not have.
    """

    @property
    def device(self) -> Any:
        """Return the CPU, where results reside, with the attributes of torch.device."""
        return DeviceName("cpu")

    @property
    def is_cuda(self) -> builtins.bool:
        return False

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
        """Return the values as another NumPy or torch dtype."""
        return self.to(dtype)

    # ------------------------------------------------------------ shapes

    @property
    def size(self) -> Any:
        made = Size(super().size)
        made.shape = self.shape
        return made

    def nelement(self) -> builtins.int:
        return self.numel()

    def squeeze(self, *dims: Any, dim: Any = None, **named: Any) -> Any:
        """Remove axes of length 1, all or only the given ones; leave longer axes alone."""
        plain = np.asarray(self)
        wanted = [each for each in (*dims, dim) if each is not None]
        if wanted:
            axes = np.atleast_1d(wanted[0]).tolist()
            named["axis"] = tuple(each for each in axes if plain.shape[each] == 1)
        return self._made(plain.squeeze(**named))

    def unsqueeze(self, dim: builtins.int) -> Any:
        return self._made(np.expand_dims(np.asarray(self), dim))

    def t(self) -> Any:
        return self.T

    def permute(self, *dims: Any) -> Any:
        return super().transpose(*dims)

    # ------------------------------------------------------------ values

    def max(
        self, *options: Any, dim: Any = None, keepdim: builtins.bool = False, **named: Any
    ) -> Any:
        """Return the largest value as NumPy does; with `dim`, values and indices as torch does."""
        return self._extreme("max", dim, keepdim, *options, **named)

    def min(
        self, *options: Any, dim: Any = None, keepdim: builtins.bool = False, **named: Any
    ) -> Any:
        """Return the smallest value as NumPy does; with `dim`, values and indices as torch does."""
        return self._extreme("min", dim, keepdim, *options, **named)

    def _extreme(
        self, name: str, dim: Any, keepdim: builtins.bool, *options: Any, **named: Any
    ) -> Any:
        plain = np.asarray(self)
        if dim is None:
            return self._made(getattr(plain, name)(*options, **named))
        found = (
            getattr(plain, f"{kind}{name}")(axis=dim, keepdims=keepdim) for kind in ("", "arg")
        )
        return Selected(*map(self._made, found))

    argmax: Any = _reduction("argmax")
    argmin: Any = _reduction("argmin")
    sum: Any = _reduction("sum")
    mean: Any = _reduction("mean")
    any: Any = _reduction("any")
    all: Any = _reduction("all")
    prod: Any = _reduction("prod")
    cumsum: Any = _reduction("cumsum")
    std: Any = _spread("std")
    var: Any = _spread("var")

    eq, ne, gt, ge, lt, le = (
        getattr(np.ndarray, f"__{name}__") for name in ("eq", "ne", "gt", "ge", "lt", "le")
    )

    def nonzero(self, *, as_tuple: builtins.bool | None = None) -> Any:
        """Return an array of indices per axis or, with as_tuple=False, a row for each value."""
        plain = np.asarray(self)
        if as_tuple is False:
            return self._made(np.argwhere(plain))
        return tuple(map(self._made, plain.nonzero()))

    def bincount(self, weights: Any = None, minlength: builtins.int = 0) -> Any:
        """Return how often each number from 0 to the largest occurs."""
        return self._made(np.bincount(np.asarray(self), weights, minlength))

    def abs(self) -> Any:
        return self._made(np.abs(np.asarray(self)))

    def clamp(self, min: Any = None, max: Any = None) -> Any:
        return self._made(np.asarray(self).clip(min, max))

    add_: Any = _in_place(lambda array, other, *, alpha=1: array + np.multiply(other, alpha))
    sub_: Any = _in_place(lambda array, other, *, alpha=1: array - np.multiply(other, alpha))
    mul_: Any = _in_place(np.multiply)
    div_: Any = _in_place(_divided)
    clamp_: Any = _in_place(lambda array, min=None, max=None: array.clip(min, max))
    round_: Any = _in_place(lambda array, *, decimals=0: array.round(decimals))
    zero_: Any = _in_place(np.zeros_like)
    # As in torch, these two convert their argument to the dtype of the values.
    copy_: Any = _in_place(lambda array, other: np.asarray(other).astype(array.dtype))
    fill_: Any = copy_

    def sort(
        self,
        *options: Any,
        dim: Any = None,
        descending: builtins.bool | None = None,
        **named: Any,
    ) -> Any:
        """Return values and indices as torch does; with NumPy's `axis` or `kind`, sort in place.

        Copies that own their memory are sorted in place even without arguments, for NumPy's
        functions. A column of a result is not: its values would no longer match their boxes.
        """
        options, descending = _direction(options, descending)
        if dim is not None:
            options = (dim,)
        is_numpy = bool(named) or (self.flags.owndata and not options)
        if descending is None and is_numpy:
            return super().sort(*options, **named)
        return Selected(*super().sort(*options, descending=bool(descending), **named))

    def topk(
        self,
        k: builtins.int,
        dim: builtins.int = -1,
        largest: builtins.bool = True,
        sorted: builtins.bool = True,
    ) -> Selected:
        """Return the `k` largest or smallest values and their indices, the most extreme first."""
        order = np.asarray(self.argsort(dim, descending=largest)).take(np.arange(k), dim)
        values = np.take_along_axis(np.asarray(self), order, dim)
        return Selected(self._made(values), self._made(order))

    def argsort(self, *options: Any, descending: builtins.bool | None = None, **named: Any) -> Any:
        options, descending = _direction(options, descending)
        return super().argsort(*options, descending=bool(descending), **named)

    # ------------------------------------------------------------ elements

    def _made(self, array: Any) -> Any:
        plain = np.asarray(array)
        # NumPy's bool cannot be subclassed.
        return plain.view(Tensor) if plain.ndim or plain.dtype == bool else number(plain[()])

    def __getitem__(self, which: Any) -> Any:
        return self._made(np.asarray(self)[which])

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __array_wrap__(
        self, array: Array, context: Any = None, return_scalar: builtins.bool | None = None
    ) -> Any:
        """Return the result of an operation; NumPy 1 refuses a scalar if it passes no context."""
        if context is None and return_scalar is None:
            return np.asarray(array).view(Tensor)
        return self._made(array)


def tensor(array: Array) -> Tensor:
    """Return an array as a Tensor that shares its memory."""
    return np.asarray(array).view(Tensor)


def refuse_type(what: str, targets: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise if to() of float32 data is given another dtype; a device changes nothing."""
    kind = tensor(np.empty(0, np.float32)).to(*targets, **named).dtype
    if kind != np.float32:
        hint = f"Convert {what}.data or another array"
        raise InputError(f"to(): expected a device, got {kind}: {what} stay float32. {hint}")


def _for_numpy(named: dict[str, Any]) -> dict[str, Any]:
    """Convert torch's argument names to NumPy's."""
    names = {"dim": "axis", "keepdim": "keepdims", "correction": "ddof"}
    return {names.get(name, name): value for name, value in named.items()}


def _direction(
    options: tuple[Any, ...], descending: bool | None
) -> tuple[tuple[Any, ...], bool | None]:
    """Split torch's second argument, `descending`, from the options."""
    if len(options) > 1 and isinstance(options[1], bool):
        return options[:1], options[1]
    return options, descending
