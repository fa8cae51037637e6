"""Boxes: the boxes of a picture, with ultralytics' attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from reprlib import repr as brief
from typing import Any, TypeAlias, cast

import numpy as np

from engine.arguments import as_array
from engine.arrays import Array
from engine.compat.ultralytics.tensor import Tensor, refuse_type, tensor
from engine.errors import InputError
from engine.vision.result import Result

# Any, so that type checkers do not ask programs to test for None.
MaybeNone: TypeAlias = Any

_TRACKED = 7  # columns with an identity; 6 without


class Boxes:
    """Boxes, scores and classes; indexing and slicing give Boxes again.

    As in ultralytics, `xyxy`, `conf`, `cls`, `id` and the results of indexing and slicing are views
    of the rows in `data`, because programs change boxes in place. `xywh`, `xyxyn` and `xywhn` are
    computed.
    """

    def __init__(self, boxes: Any, orig_shape: tuple[int, int]) -> None:
        """Take rows as in `data`; an array of float32 is not copied.

        `orig_shape` is the height and the width of the picture.
        """
        self._rows = _checked(boxes)
        self._as: Callable[[Array], Tensor] = tensor
        self.orig_shape = orig_shape

    @property
    def data(self) -> Tensor:
        """Return (n, 6): left, top, right, bottom, score, class; after track() (n, 7).

        The identity then precedes the score.
        """
        return self._as(self._rows)

    @data.setter
    def data(self, rows: Any) -> None:
        self._rows = _checked(rows)

    @property
    def id(self) -> Tensor | MaybeNone:
        """Return the identities of a tracker, (n,), or None."""
        return self._as(self._rows[:, 4]) if self.is_track else None

    @property
    def is_track(self) -> bool:
        return bool(self._rows.shape[1] == _TRACKED)

    @property
    def xyxy(self) -> Tensor:
        """Return (n, 4): left, top, right, bottom in pixels."""
        return self._as(self._rows[:, :4])

    @property
    def conf(self) -> Tensor:
        """Return the scores, (n,)."""
        return self._as(self._rows[:, -2])

    @property
    def cls(self) -> Tensor:
        """Return the numbers of the classes, (n,), as float32."""
        return self._as(self._rows[:, -1])

    @property
    def xywh(self) -> Tensor:
        """Return (n, 4): centre and size in pixels."""
        return self._as(self._centres().astype(np.float32))

    @property
    def xyxyn(self) -> Tensor:
        """Return (n, 4): left, top, right, bottom relative to the picture."""
        return self._as((self._rows[:, :4] / self._sides()).astype(np.float32))

    @property
    def xywhn(self) -> Tensor:
        """Return (n, 4): centre and size relative to the picture."""
        return self._as((self._centres() / self._sides()).astype(np.float32))

    def _centres(self) -> Array:
        first, last = np.hsplit(self._rows[:, :4].astype(np.float64), 2)
        return np.hstack([(first + last) / 2, last - first])

    def _sides(self) -> Array:
        height, width = self.orig_shape[:2]
        return np.array([width, height, width, height], np.float64)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._rows.shape

    def cpu(self) -> Boxes:
        return self

    def cuda(self, *_: Any, **__: Any) -> Boxes:
        return self

    def numpy(self) -> Boxes:
        """Return the same boxes as plain NumPy arrays with NumPy's own scalars."""
        made = copy(self)
        made._as = cast(Any, np.asarray)
        return made

    def to(self, *targets: Any, **named: Any) -> Boxes:
        refuse_type("boxes", targets, named)
        return self

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Boxes]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, which: Any) -> Boxes:
        if np.ndim(which) == 0 and not isinstance(which, slice):
            row = range(len(self))[which]
            which = slice(row, row + 1)  # a slice gives a view of the row
        made = copy(self)
        made._rows = _checked(self._rows[which])
        return made

    def __repr__(self) -> str:
        return f"<Boxes: {len(self)} in {self.orig_shape[1]} x {self.orig_shape[0]}>"


def clipped(rows: Any, orig_shape: tuple[int, int]) -> Boxes:
    """Return the Boxes of such rows, clipped to the picture."""
    data = _checked(rows).copy()
    data[:, :4] = data[:, :4].clip(0, np.tile(orig_shape[::-1], 2))
    return Boxes(data, orig_shape)


def rows_of(result: Result) -> Array:
    """Return the boxes of a result as rows of `data`."""
    tracks = () if result.track_ids is None else (result.track_ids,)
    columns = (result.xyxy, *tracks, result.scores, result.class_ids)
    return np.column_stack(columns).astype(np.float32)


def _checked(rows: Any) -> Array:
    """Return rows of left, top, right, bottom, (identity,) score and class, as float32."""
    try:
        data = np.atleast_2d(as_array("boxes", rows)).astype(np.float32, copy=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"boxes: expected numbers, got {brief(rows)}") from error
    if data.ndim != 2 or data.shape[1] not in (_TRACKED - 1, _TRACKED):
        raise InputError(f"boxes: expected rows of 6 or 7 numbers, got the shape {data.shape}")
    if not np.all(np.isfinite(data[:, -1]) & (data[:, -1] >= 0)):
        raise InputError("boxes: expected the number of a class, 0 or more, at the end of each row")
    return np.asarray(data)


def inside(result: Result) -> Result:
    """Return the result with boxes clipped to the picture, as in ultralytics.

    Programs use them as crop indices, and NumPy counts negative indices from the end.
    """
    centre, half = result.xywhn[:, :2].astype(np.float64), result.xywhn[:, 2:] / 2.0
    first, last = centre - half, centre + half
    is_outside = np.any((first < 0) | (last > 1), axis=1, keepdims=True)
    if not np.any(is_outside):
        return result
    first, last = first.clip(0, 1), last.clip(0, 1)
    inside = np.concatenate([(first + last) / 2, last - first], axis=1, dtype=np.float32)
    return replace(result, xywhn=np.where(is_outside, inside, result.xywhn))
