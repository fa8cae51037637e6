"""Top-k accuracy of a classifier; as in darknet, the path of a picture contains its true label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array


def class_in(path: str, labels: Sequence[str]) -> int | None:
    """Return the first class whose label the path contains, if any."""
    return next((i for i, label in enumerate(labels) if label and label in path), None)


def is_ambiguous(path: str, labels: Sequence[str]) -> bool:
    return sum(bool(label) and label in path for label in labels) > 1


@dataclass
class TopKAccuracy:
    """Counts of pictures whose true class is the first, or among the first `top`."""

    top: int = 5
    pictures: int = 0
    first: int = 0
    among_top: int = 0

    def add(self, probabilities: Array, true_class: int) -> None:
        best = np.argsort(-probabilities, kind="stable")[: max(self.top, 1)].tolist()
        self.pictures += 1
        self.first += best[0] == true_class
        self.among_top += true_class in best[: self.top]

    def add_missed(self) -> None:
        """Count a picture for which the network returned no classes."""
        self.pictures += 1

    def to_dict(self) -> dict[str, float]:
        pictures = max(self.pictures, 1)
        return {
            "pictures": self.pictures,
            "top1": self.first / pictures,
            f"top{self.top}": self.among_top / pictures,
        }
