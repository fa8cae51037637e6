"""Probs: the probabilities of a classifier with the attributes of ultralytics."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.vision.box_array import Values


class Probs:
    """The probabilities of a classifier."""

    def __init__(self, probabilities: Array) -> None:
        self.data = probabilities.view(Values)
        order = np.argsort(-probabilities, kind="stable")[:5]
        self.top5 = order.tolist()
        self.top1 = int(order[0])
        self.top5conf = self.data[order]
        self.top1conf = self.data[order[0], ...]  # an array without axes

    def cpu(self) -> Probs:
        return self

    def numpy(self) -> Probs:
        return self

    def __len__(self) -> int:
        return len(self.data)
