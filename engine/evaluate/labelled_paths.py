"""The right class of a picture by its path, as darknet's classifier lists have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array


def class_in(path: str, labels: Sequence[str]) -> int | None:
    """The first class whose label the path contains; None when it contains none."""
    return next((i for i, label in enumerate(labels) if label and label in path), None)


def is_ambiguous(path: str, labels: Sequence[str]) -> bool:
    return sum(bool(label) and label in path for label in labels) > 1


@dataclass
class Tally:
    """How often the right class is the first of all, or among the first `top`."""

    top: int = 5
    pictures: int = 0
    first: int = 0
    among: int = 0

    def add(self, probabilities: Array, right: int) -> None:
        best = np.argsort(-probabilities, kind="stable")[: max(self.top, 1)].tolist()
        self.pictures += 1
        self.first += best[0] == right
        self.among += right in best[: self.top]

    def to_dict(self) -> dict[str, float]:
        pictures = max(self.pictures, 1)
        return {
            "pictures": self.pictures,
            "top1": self.first / pictures,
            f"top{self.top}": self.among / pictures,
        }
