"""How pictures lie in a slot: their bytes one behind the other, and a table of where each goes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.backends.base import Placed
from engine.vision.boxes import margin_and_ratio
from engine.vision.resize import Placement

Array = NDArray[Any]

# PlacedPicture of kernels/pictures.cu
ENTRY = np.dtype(
    [
        ("pixels", np.uint64),
        ("size", np.int32, 2),
        ("inner", np.int32, 2),
        ("offset", np.int32, 2),
        ("scale", np.float32, 2),
        ("is_letterbox", np.int32),
        ("darkens", np.int32),
        ("margin", np.float64, 2),
        ("ratio", np.float64, 2),
    ]
)
MOST_BYTES = 256 << 20  # of one run's pictures: more are scaled on the CPU

_ALIGNMENT = 16
_COPIERS = min(8, os.cpu_count() or 1)
_WORTH_A_THREAD = 4 << 20  # bytes: waking one takes as long as copying some hundred thousand


class Arrangement(NamedTuple):
    """Where each picture begins, and the room that all of them need."""

    starts: list[int]
    size: int


def arrange(pictures: Sequence[Placed]) -> Arrangement | None:
    """None if they are to be scaled on the CPU: no bytes, or too many."""
    starts, top = [], 0
    for each in pictures:
        pixels = each.pixels
        if pixels.dtype.char != "B":
            return None
        starts.append(top)
        top += -(-pixels.size // _ALIGNMENT) * _ALIGNMENT
    return Arrangement(starts, top) if top <= MOST_BYTES else None


def entries(pictures: Sequence[Placed]) -> bytes:
    """An entry of the table for each of the pictures: all of it but the pointers."""
    return b"".join([_entry(each.placement, each.exact) for each in pictures])


@lru_cache(maxsize=256)
def _entry(placement: Placement, exact: bool) -> bytes:
    inner = placement.inner
    scale = tuple(
        np.float32(extent - 1) / np.float32(max(scaled - 1, 1))
        for extent, scaled in zip(placement.picture, inner, strict=True)
    )
    is_letterbox = placement.kind == "letterbox"
    where = placement.picture, inner, placement.offset, scale, is_letterbox, exact
    return np.array((0, *where, *margin_and_ratio(placement)), ENTRY).tobytes()


class Copier:
    """Copies pictures into page-locked memory; many bytes are copied by several threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_COPIERS, thread_name_prefix="cuda-copy")  # when used

    def copy(self, pictures: Sequence[Placed], arrangement: Arrangement, out: Array) -> None:
        if arrangement.size < 2 * _WORTH_A_THREAD:
            _copy(pictures, arrangement.starts, out)
            return
        shares = list(_shares(pictures, arrangement))
        others = [self._threads.submit(_copy, *share, out) for share in shares[1:]]
        _copy(*shares[0], out)
        for each in others:
            each.result()

    def close(self) -> None:
        self._threads.shutdown()


def _shares(
    pictures: Sequence[Placed], arrangement: Arrangement
) -> Iterator[tuple[Sequence[Placed], Sequence[int]]]:
    """Neighbours for each of several threads."""
    threads = min(_COPIERS, arrangement.size // _WORTH_A_THREAD, len(pictures))
    borders = [len(pictures) * thread // threads for thread in range(threads + 1)]
    for first, last in pairwise(borders):
        yield pictures[first:last], arrangement.starts[first:last]


def _copy(pictures: Sequence[Placed], starts: Sequence[int], out: Array) -> None:
    for start, each in zip(starts, pictures, strict=True):
        pixels = each.pixels
        np.copyto(out[start : start + pixels.size].reshape(pixels.shape), pixels)
