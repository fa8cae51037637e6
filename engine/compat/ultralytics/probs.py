"""Probs: the probabilities of a classifier with the attributes of ultralytics."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.compat.ultralytics.tensor import refuse_type, tensor


class Probs:
    """The probabilities of a classifier."""

    def __init__(self, probs: Array, orig_shape: tuple[int, int] | None = None) -> None:
        self.data: Array = tensor(probs)
        self.orig_shape = orig_shape
        order = np.argsort(-np.asarray(probs), kind="stable")[:5]
        self.top5 = order.tolist()
        self.top1 = int(order[0])
        self.top5conf: Array = self.data[order]
        self.top1conf: Any = self.data[self.top1]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def cpu(self) -> Probs:
        return self

    def cuda(self, *_: Any, **__: Any) -> Probs:
        return self

    def to(self, *targets: Any, **named: Any) -> Probs:
        refuse_type("probs", targets, named)
        return self

    def numpy(self) -> Probs:
        """Return the same probabilities as plain NumPy arrays."""
        made = copy(self)
        made.data, made.top5conf = np.asarray(self.data), np.asarray(self.top5conf)
        made.top1conf = made.data[self.top1]
        return made

    def __len__(self) -> int:
        return len(self.data)
