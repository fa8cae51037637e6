"""The arrays of a result, with the attributes that users of other libraries expect."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.arrays import Array

_ATTRIBUTES = ("xyxy", "xyxyn", "xywh", "xywhn", "conf", "cls")  # attributes of BoxArray


class Values(np.ndarray[Any, np.dtype[Any]]):
    """An array with those tensor methods that scripts call before NumPy's.

    A single value can be passed to int() and float(), regardless of the number of axes.
    """

    __array_priority__ = -1.0  # np.concatenate() of these gives a plain array

    def cpu(self) -> Values:
        return self

    def numpy(self, *, force: bool = False) -> Array:
        return np.asarray(self)

    def to(self, *targets: Any, dtype: Any = None, **_: Any) -> Values:
        """Return a copy as another NumPy or torch dtype; a device changes nothing."""
        for each in (*targets, dtype):
            kind = each.dtype if isinstance(each, np.ndarray) else each
            name = str(kind)
            if name.startswith("torch."):
                kind = np.dtype(name.removeprefix("torch."))
            elif name in np.sctypeDict:  # as "float64"
                kind = np.dtype(name)
            if isinstance(kind, (np.dtype, type)):
                return self if kind == self.dtype else self._as(kind)
        return self

    def detach(self) -> Values:
        return self

    def clone(self) -> Values:
        return self._as(self.dtype)

    def int(self) -> Values:
        """Return a copy as int32; fractions are truncated, as in a tensor."""
        return self._as(np.int32)

    def long(self) -> Values:
        """Return a copy as int64."""
        return self._as(np.int64)

    def float(self) -> Values:
        """Return a copy as float32."""
        return self._as(np.float32)

    def _as(self, dtype: Any) -> Values:
        return self._made(np.array(self, dtype))

    def _made(self, array: Array) -> Values:
        """Return a method's result as an array with these methods."""
        return array.view(Values)

    def dim(self) -> builtins.int:
        return self.ndim

    def numel(self) -> builtins.int:
        return self.size

    def unique(
        self,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: builtins.int | None = None,
    ) -> Any:
        """Return the distinct values, sorted, and their positions and counts if requested."""
        wanted: dict[str, Any] = {"return_inverse": return_inverse, "return_counts": return_counts}
        made = np.unique(np.asarray(self), axis=dim, **wanted)
        return tuple(map(self._made, made)) if isinstance(made, tuple) else self._made(made)

    def unbind(self, dim: builtins.int = 0) -> tuple[Any, ...]:
        return tuple(self._made(np.moveaxis(np.asarray(self), dim, 0)))

    def view(self, *shape: Any, **named: Any) -> Any:
        """Return the values in another shape, given as integers, or NumPy's view."""
        if len(shape) == 1 and isinstance(shape[0], tuple):
            (shape,) = shape
        is_shape = bool(shape) and all(isinstance(each, builtins.int) for each in shape)
        return self.reshape(shape) if is_shape else super().view(*shape, **named)

    def argsort(self, *options: Any, descending: bool = False, **named: Any) -> Any:
        """Return the indices that sort the values, in descending order if `descending`."""
        if "dim" in named:
            named["axis"] = named.pop("dim")
        if not descending:
            return self._made(np.asarray(self).argsort(*options, **named))
        values, axis = self._along(*options, **named)
        last = values.shape[axis] - 1
        # Equal values keep their order.
        return self._made(np.flip(last - np.flip(values, axis).argsort(axis, kind="stable"), axis))

    def sort(self, *options: Any, descending: bool | None = None, **named: Any) -> Any:
        """Sort in place as NumPy does; with `descending`, return values and indices like torch."""
        if descending is None:
            return super().sort(*options, **named)
        order = self.argsort(*options, descending=descending, **named)
        values, axis = self._along(*options, **named)
        return self._made(np.take_along_axis(values, order, axis)), order

    def _along(
        self, axis: builtins.int | None = -1, *, dim: Any = None, **_: Any
    ) -> tuple[Array, builtins.int]:
        """Return the values and the axis to sort along; NumPy's None means all values."""
        along = axis if dim is None else dim
        return (np.asarray(self).ravel(), 0) if along is None else (np.asarray(self), along)

    def __int__(self) -> builtins.int:
        return int(self.item())

    def __float__(self) -> builtins.float:
        return float(self.item())

    def __array_wrap__(
        self, array: Array, context: Any = None, return_scalar: bool | None = None
    ) -> Any:
        """Return the result of an operation as a plain array or a number.

        NumPy 1 does not say which of the two it expects; there a single value becomes a number.
        """
        plain = np.asarray(array)
        if plain.ndim:
            return plain.view(Values)
        return plain if return_scalar is False else plain[()]


def _copied(array: Array) -> Values:
    """Return a copy: sorting a column in place would separate a result's scores from its boxes."""
    return np.array(array).view(Values)


class BoxArray(Values):
    """The edges of boxes in pixels: left, top, right, bottom, as (n, 4) float32.

    Its attributes are the same boxes in other forms, their scores and their classes. Rows,
    selections of rows and copies have them too. Other arrays that NumPy derives from it, such as a
    transpose, do not: their rows may be other boxes, or no boxes.
    """

    _size: tuple[int, int]
    _xywhn: Array
    _scores: Array
    _class_ids: Array

    @classmethod
    def of(
        cls,
        edges: Array,
        *,
        size: tuple[int, int],
        xywhn: Array,
        scores: Array,
        class_ids: Array,
    ) -> BoxArray:
        array = edges.view(cls)
        array._size, array._xywhn = size, xywhn
        array._scores, array._class_ids = scores, class_ids
        return array

    @property
    def _is_whole(self) -> bool:
        """Return whether each row is still a box, whose score and class are known."""
        return "_scores" in self.__dict__

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raise an error about the requested attribute, not the one it is computed from."""
            if name in _ATTRIBUTES:
                known = "result.boxes, its rows and its copies have it"
                raise AttributeError(f"{name}: is not known of an array made of boxes: {known}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def xyxy(self) -> Values:
        """Return (n, 4): left, top, right, bottom in pixels."""
        return np.asarray(self).reshape(self._xywhn.shape).view(Values)

    @property
    def xyxyn(self) -> Values:
        """Return (n, 4): left, top, right, bottom relative to the picture."""
        centre, half = self._xywhn[:, :2].astype(np.float64), self._xywhn[:, 2:] / 2.0
        edges = np.concatenate([centre - half, centre + half], axis=1)
        return edges.astype(np.float32).view(Values)

    @property
    def xywh(self) -> Values:
        """Return (n, 4): centre and size in pixels."""
        return np.asarray(self._xywhn * np.tile(self._size, 2), np.float32).view(Values)

    @property
    def xywhn(self) -> Values:
        """Return (n, 4): centre and size relative to the picture."""
        return _copied(self._xywhn)

    @property
    def conf(self) -> Values:
        """Return the scores, (n,)."""
        return _copied(self._scores)

    @property
    def cls(self) -> Values:
        """Return the numbers of the classes, (n,)."""
        return _copied(self._class_ids)

    def __iter__(self) -> Iterator[BoxArray]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, which: Any) -> Any:
        part = super().__getitem__(which)
        is_row = isinstance(which, (int, np.integer)) and not isinstance(which, bool)
        is_rows = isinstance(which, slice) or (not isinstance(which, tuple) and np.ndim(which) == 1)
        if not self._is_whole or self.ndim != 2 or not (is_row or is_rows):
            return np.asarray(part)[()]
        rows: slice | Array | Sequence[int] = [int(which)] if is_row else which
        return BoxArray.of(
            np.asarray(part),
            size=self._size,
            xywhn=self._xywhn[rows],
            scores=self._scores[rows],
            class_ids=self._class_ids[rows],
        )

    # ------------------------------------------------------------ copies

    def copy(self, order: Any = "C") -> BoxArray:
        return self._with_attributes(super().copy(order))

    def astype(self, *options: Any, **named: Any) -> Any:
        made = super().astype(*options, **named)
        return self._with_attributes(made) if isinstance(made, BoxArray) else made

    def _as(self, dtype: Any) -> Values:
        return self.copy().astype(dtype, copy=False)  # type: ignore[no-any-return]

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> BoxArray:
        return self.copy()

    def _with_attributes(self, made: BoxArray) -> BoxArray:
        if not self._is_whole or made is self:
            return made
        columns = (self._xywhn, self._scores, self._class_ids)
        return _boxes(made, self._size, *(each.copy() for each in columns))

    def __reduce__(self) -> Any:
        if not self._is_whole:
            return super().__reduce__()
        columns = (self._xywhn, self._scores, self._class_ids)
        return _boxes, (np.asarray(self), self._size, *columns)

    def sort(self, *options: Any, **named: Any) -> Any:
        """Sort in place, or a copy for np.sort(), after which a row mixes several boxes."""
        made = super().sort(*options, **named)
        if made is None:
            self.__dict__.clear()
        return made

    def partition(self, *options: Any, **named: Any) -> None:
        super().partition(*options, **named)
        self.__dict__.clear()


def _boxes(
    edges: Array, size: tuple[int, int], xywhn: Array, scores: Array, class_ids: Array
) -> BoxArray:
    """Call BoxArray.of() with positional arguments, as pickle does."""
    return BoxArray.of(edges, size=size, xywhn=xywhn, scores=scores, class_ids=class_ids)
