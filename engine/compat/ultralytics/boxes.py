"""Boxes: the boxes of a picture with the attributes of ultralytics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.vision.box_array import BoxArray, Values


class Boxes:
    """Boxes, scores and classes; an index or a slice gives Boxes again."""

    id = None  # numbers of a tracker, which there is not
    is_track = False

    def __init__(self, edges: BoxArray, orig_shape: tuple[int, int]) -> None:
        self._edges = edges
        self.orig_shape = orig_shape

    @property
    def xyxy(self) -> Values:
        """Return (n, 4): left, top, right, bottom in pixels."""
        return self._edges.xyxy

    @property
    def xywh(self) -> Values:
        """Return (n, 4): centre and size in pixels."""
        return self._edges.xywh

    @property
    def xyxyn(self) -> Values:
        """Return (n, 4): left, top, right, bottom relative to the picture."""
        return self._edges.xyxyn

    @property
    def xywhn(self) -> Values:
        """Return (n, 4): centre and size relative to the picture."""
        return self._edges.xywhn

    @property
    def conf(self) -> Values:
        """Return the scores, (n,)."""
        return self._edges.conf

    @property
    def cls(self) -> Values:
        """Return the numbers of the classes, (n,)."""
        return self._edges.cls

    @property
    def data(self) -> Values:
        """Return (n, 6): left, top, right, bottom, score, class."""
        columns = (self.xyxy, self.conf[:, None], self.cls[:, None])
        return np.concatenate(columns, axis=1, dtype=np.float32).view(Values)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), 6

    def cpu(self) -> Boxes:
        return self

    def numpy(self) -> Boxes:
        return self

    def to(self, *_: Any, **__: Any) -> Boxes:
        return self

    def __len__(self) -> int:
        return len(self._edges)

    def __iter__(self) -> Iterator[Boxes]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, which: Any) -> Boxes:
        if isinstance(which, (int, np.integer)):
            which = [range(len(self))[which]]
        return Boxes(self._edges[which], self.orig_shape)

    def __repr__(self) -> str:
        return f"<Boxes: {len(self)} in {self.orig_shape[1]} x {self.orig_shape[0]}>"
