"""Copy arrays of one size into adjacent memory, in few calls of NumPy.

NumPy reacquires the GIL after each array that it copies, which doubles the time of a copy while
other threads run Python. Arrays at equal distances, as when allocated one by one, are copied as one
array whose rows are that far apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import numpy as np

from engine.arrays import Array

_LEAST_RUN = 4  # arrays at equal distances, on average


def gather(sources: Sequence[Array], out: Array) -> bool:
    """Copy contiguous arrays of one size and type into `out`, which is contiguous.

    Return False, and do nothing, if they do not lie at equal distances, or if `out` lies between
    them: NumPy would copy whatever seems to overlap, even memory that does not exist.
    """
    begins: list[int] = [each.__array_interface__["data"][0] for each in sources]
    size = sources[0].nbytes
    target = out.reshape(-1).view(np.uint8).reshape(len(begins), size)
    place = target.__array_interface__["data"][0]
    if min(begins) < place + target.size and place < max(begins) + size:
        return False
    runs = _runs(begins)
    if len(runs) * _LEAST_RUN > len(begins):
        return False
    for first, last in runs:
        step = begins[first + 1] - begins[first] if last - first > 1 else size
        np.copyto(target[first:last], _bytes_at(begins[first], (last - first, size), step))
    return True


def _runs(begins: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the end of each run of addresses with equal distances."""
    borders, step = [0], None
    for number in range(1, len(begins)):
        distance = begins[number] - begins[number - 1]
        if step is None:
            step = distance
        elif distance != step:
            borders.append(number)
            step = None
    return list(pairwise([*borders, len(begins)]))


def _bytes_at(begin: int, shape: tuple[int, int], step: int) -> Array:
    """View memory as an array of bytes whose rows are `step` apart."""
    facts = {
        "data": (begin, True),
        "shape": shape,
        "strides": (step, 1),
        "typestr": "|u1",
        "version": 3,
    }
    return np.asarray(SimpleNamespace(__array_interface__=facts))
