"""Class trees, given as the parent of each class; the parent of a root is -1."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from engine.arrays import Array

Level = tuple[Array, Array]  # the classes of one depth and their parents


def multiply_down(conditional: Array, parents: tuple[int, ...]) -> Array:
    """Multiply the probability of each class, in every row, by those of all its ancestors."""
    for classes, their_parents in _levels(parents):
        conditional[:, classes] *= conditional[:, their_parents]
    return conditional


def leaves(parents: tuple[int, ...]) -> Array:
    """Return a mask of the classes without children."""
    are_leaves = np.ones(len(parents), bool)
    are_leaves[[parent for parent in parents if parent >= 0]] = False
    return are_leaves


@lru_cache(maxsize=4)
def _levels(parents: tuple[int, ...]) -> tuple[Level, ...]:
    """Split the tree below its roots into levels of one depth, from the top."""
    depths = [0] * len(parents)
    for index, parent in enumerate(parents):
        if parent >= 0:
            depths[index] = depths[parent] + 1
    depth, parent_of = np.array(depths), np.array(parents)
    levels = (np.flatnonzero(depth == each) for each in range(1, max(depths) + 1))
    return tuple((classes, parent_of[classes]) for classes in levels)
