"""Boxes: the boxes of a picture with the attributes of ultralytics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np

from engine.arguments import as_array
from engine.arrays import Array
from engine.compat.ultralytics.tensor import Tensor, tensor
from engine.errors import InputError
from engine.vision.box_array import BoxArray
from engine.vision.result import Result

# A program knows whether it tracks: type checkers need not ask for a test.
MaybeNone: TypeAlias = Any


class Boxes:
    """Boxes, scores and classes; an index or a slice gives Boxes again."""

    def __init__(
        self, boxes: BoxArray | Array, orig_shape: tuple[int, int], ids: Array | None = None
    ) -> None:
        """Take the edges of a result with the identities of a tracker, or rows as in `data`.

        `orig_shape` is the height and the width of the picture.
        """
        if not isinstance(boxes, BoxArray):
            boxes, ids = _from_rows(boxes, orig_shape)
        self._edges = boxes
        self._ids = ids
        self._as: Callable[[Array], Tensor] = tensor
        self.orig_shape = orig_shape

    @property
    def id(self) -> Tensor | MaybeNone:
        """Return the identities of a tracker, (n,), or None."""
        return None if self._ids is None else self._as(self._ids.astype(np.float32))

    @property
    def is_track(self) -> bool:
        return self._ids is not None

    @property
    def xyxy(self) -> Tensor:
        """Return (n, 4): left, top, right, bottom in pixels."""
        return self._as(self._edges.xyxy.copy())

    @property
    def xywh(self) -> Tensor:
        """Return (n, 4): centre and size in pixels."""
        return self._as(self._edges.xywh)

    @property
    def xyxyn(self) -> Tensor:
        """Return (n, 4): left, top, right, bottom relative to the picture."""
        return self._as(self._edges.xyxyn)

    @property
    def xywhn(self) -> Tensor:
        """Return (n, 4): centre and size relative to the picture."""
        return self._as(self._edges.xywhn)

    @property
    def conf(self) -> Tensor:
        """Return the scores, (n,)."""
        return self._as(self._edges.conf)

    @property
    def cls(self) -> Tensor:
        """Return the numbers of the classes, (n,)."""
        return self._as(self._edges.cls)

    @property
    def data(self) -> Tensor:
        """Return (n, 6): left, top, right, bottom, score, class; after track() (n, 7).

        Then the identity stands before the score.
        """
        columns = [each for each in (self.id, self.conf, self.cls) if each is not None]
        parts = [self.xyxy, *(each[:, None] for each in columns)]
        return self._as(np.concatenate(parts, axis=1, dtype=np.float32))

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), 7 if self.is_track else 6

    def cpu(self) -> Boxes:
        return self

    def cuda(self, *_: Any, **__: Any) -> Boxes:
        return self

    def numpy(self) -> Boxes:
        """Return the same boxes with plain arrays of NumPy, whose elements are its own numbers."""
        made = copy(self)
        made._as = cast(Any, np.asarray)
        return made

    def to(self, *_: Any, **__: Any) -> Boxes:
        return self

    def __len__(self) -> int:
        return len(self._edges)

    def __iter__(self) -> Iterator[Boxes]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, which: Any) -> Boxes:
        if np.ndim(which) == 0 and not isinstance(which, slice):
            which = [range(len(self))[which]]
        made = copy(self)
        made._edges = self._edges[which]
        made._ids = None if self._ids is None else self._ids[which]
        return made

    def __repr__(self) -> str:
        return f"<Boxes: {len(self)} in {self.orig_shape[1]} x {self.orig_shape[0]}>"


def clipped(rows: Any, orig_shape: tuple[int, int]) -> Boxes:
    """Return the Boxes of such rows, cut at the edges of the picture."""
    data = np.asarray(Boxes(rows, orig_shape).data)
    data[:, :4] = data[:, :4].clip(0, np.tile(orig_shape[::-1], 2))
    return Boxes(data, orig_shape)


def _from_rows(rows: Any, orig_shape: tuple[int, int]) -> tuple[BoxArray, Array | None]:
    """Return edges and identities of rows: left, top, right, bottom, (identity,) score, class."""
    data = np.atleast_2d(as_array("boxes", rows)).astype(np.float32)
    if data.ndim != 2 or data.shape[1] not in (6, 7):
        raise InputError(f"boxes: expected rows of 6 or 7 numbers, got the shape {data.shape}")
    if not np.all(np.isfinite(data[:, -1]) & (data[:, -1] >= 0)):
        raise InputError("boxes: expected the number of a class, 0 or more, at the end of each row")
    height, width = orig_shape[:2]
    edges = data[:, :4].astype(np.float64)
    xywh = np.concatenate([(edges[:, :2] + edges[:, 2:]) / 2, edges[:, 2:] - edges[:, :2]], axis=1)
    boxes = BoxArray.of(
        data[:, :4].copy(),
        size=(width, height),
        xywhn=(xywh / np.tile((width, height), 2)).astype(np.float32),
        scores=data[:, -2].copy(),
        class_ids=data[:, -1].astype(np.int64),
    )
    return boxes, data[:, 4].astype(np.int64) if data.shape[1] == 7 else None


def inside(result: Result) -> Result:
    """Return the result with boxes that end at the edges of the picture, as in ultralytics.

    Programs cut them out by these numbers, and NumPy counts negative ones from the other end.
    """
    centre, half = result.xywhn[:, :2].astype(np.float64), result.xywhn[:, 2:] / 2.0
    first, last = centre - half, centre + half
    is_outside = np.any((first < 0) | (last > 1), axis=1, keepdims=True)
    if not np.any(is_outside):
        return result
    first, last = first.clip(0, 1), last.clip(0, 1)
    inside = np.concatenate([(first + last) / 2, last - first], axis=1, dtype=np.float32)
    return replace(result, xywhn=np.where(is_outside, inside, result.xywhn))
