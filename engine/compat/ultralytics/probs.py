"""Probs: the probabilities of a classifier with the attributes of ultralytics."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.arrays import Array
from engine.compat.ultralytics.tensor import tensor


class Probs:
    """The probabilities of a classifier."""

    def __init__(self, probabilities: Array) -> None:
        self.data = tensor(probabilities)
        order = np.argsort(-probabilities, kind="stable")[:5]
        self.top5 = order.tolist()
        self.top1 = int(order[0])
        self.top5conf = self.data[order]
        self.top1conf = self.data[self.top1]

    def cpu(self) -> Probs:
        return self

    def cuda(self, *_: Any, **__: Any) -> Probs:
        return self

    def to(self, *_: Any, **__: Any) -> Probs:
        return self

    def numpy(self) -> Probs:
        return self

    def __len__(self) -> int:
        return len(self.data)
