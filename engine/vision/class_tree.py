"""Classes in a tree, as the parent of each: one above it, or -1, which is none."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Level = tuple[Array, Array]  # classes of one depth, and the parent of each


def multiply_down(conditional: Array, parents: tuple[int, ...]) -> Array:
    """Multiply the probability of each class, in every row, by those of all its ancestors."""
    for classes, above in _levels(parents):
        conditional[:, classes] *= conditional[:, above]
    return conditional


def leaves(parents: tuple[int, ...]) -> Array:
    """Whether each class has none below it."""
    are_leaves = np.ones(len(parents), bool)
    are_leaves[[parent for parent in parents if parent >= 0]] = False
    return are_leaves


@lru_cache(maxsize=4)
def _levels(parents: tuple[int, ...]) -> tuple[Level, ...]:
    """The tree below its roots by depth: a level needs nothing but the one before."""
    depths = [0] * len(parents)
    for index, parent in enumerate(parents):
        if parent >= 0:
            depths[index] = depths[parent] + 1
    depth, above = np.array(depths), np.array(parents)
    levels = (np.flatnonzero(depth == each) for each in range(1, max(depths) + 1))
    return tuple((classes, above[classes]) for classes in levels)
