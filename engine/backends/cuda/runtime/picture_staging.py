"""How pictures lie in a slot: their bytes one behind the other, and a table of where each goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from engine.arrays import Array
from engine.backends.base import Placed
from engine.concurrency import fork_safety
from engine.concurrency.thread_pool import ThreadPool
from engine.vision.postprocess import margin_and_ratio
from engine.vision.resize import Placement

_Part: TypeAlias = tuple[Sequence[Array], Sequence[int]]  # arrays, and where each begins

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
_POINTER_BYTES = ENTRY["pixels"].itemsize
_COPIERS = min(4, os.cpu_count() or 1)  # more than these wait for memory, and for Python
_seats = [fork_safety.lock() for _ in range(_COPIERS)]  # of all cards: together they would be more
_WORTH_A_THREAD = 4 << 20  # bytes: waking one takes as long as copying some hundred thousand
_WORTH_TWO_WAYS = 1 << 20  # bytes: less is there sooner than the device is told of it twice


class Arrangement(NamedTuple):
    """Where each picture begins, and the room that all of them need."""

    starts: list[int]
    size: int


def arrange(pictures: Sequence[Placed]) -> Arrangement | None:
    """None if they are to be scaled on the CPU: no bytes, or too many."""
    starts, top = [], 0
    for pixels, *_ in pictures:
        if pixels.dtype.char != "B":
            return None
        starts.append(top)
        top += -(-pixels.size // _ALIGNMENT) * _ALIGNMENT
    return Arrangement(starts, top) if top <= MOST_BYTES else None


def entries(pictures: Sequence[Placed], starts: Sequence[int], block: int) -> bytes:
    """An entry of the table for each of the pictures, which begin so far into the block."""
    parts = []
    latest: tuple[Placement, bool] | None = None
    entry = b""
    for (_, placement, exact, _), start in zip(pictures, starts, strict=True):
        parts.append((block + start).to_bytes(_POINTER_BYTES, sys.byteorder))
        if latest is None or placement is not latest[0] or exact != latest[1]:
            latest, entry = (placement, exact), _entry(placement, exact)
        parts.append(entry)
    return b"".join(parts)


@lru_cache(maxsize=256)
def _entry(placement: Placement, exact: bool) -> bytes:
    inner = placement.inner
    scale = tuple(
        np.float32(extent - 1) / np.float32(max(scaled - 1, 1))
        for extent, scaled in zip(placement.picture, inner, strict=True)
    )
    is_letterbox = placement.kind == "letterbox"
    where = placement.picture, inner, placement.offset, scale, is_letterbox, exact
    return np.array((0, *where, *margin_and_ratio(placement)), ENTRY).tobytes()[_POINTER_BYTES:]


class Copier:
    """Copies arrays into page-locked memory; many bytes are copied by several threads."""

    def __init__(self) -> None:
        self._threads = ThreadPool(_COPIERS, "cuda-copy")

    def copy(
        self,
        sources: Sequence[Array],
        starts: Sequence[int],
        out: Array,
        send: Callable[[int], object],
    ) -> None:
        """Each from its start on; `send` may be told how many bytes of `out` are ready early."""
        size = (starts[-1] + sources[-1].size) * out.itemsize
        if size >= 2 * _WORTH_A_THREAD:
            self._copy_together(sources, starts, out, -(-size // _WORTH_A_THREAD))
            return
        if size >= _WORTH_TWO_WAYS:
            ahead, (sources, starts) = _in_two(sources, starts)
            _copy(*ahead, out)
            if starts[0]:
                send(starts[0] * out.itemsize)
        _copy(sources, starts, out)

    def _copy_together(
        self, sources: Sequence[Array], starts: Sequence[int], out: Array, most: int
    ) -> None:
        parts = min(_COPIERS, most)
        sources, starts = _cut(sources, starts, parts)
        borders = [len(sources) * part // parts for part in range(parts + 1)]
        copies: list[Future[None]] = []
        try:
            for part, (first, last) in enumerate(pairwise(borders)):
                mine = sources[first:last], starts[first:last]
                copies.append(self._threads.submit(_copy_seated, part, *mine, out))
        finally:  # whoever has this memory next must have it alone
            for copy in reversed(copies):  # the last is mostly the last: so we are warm_up once
                copy.exception()
        for copy in copies:
            copy.result()

    def close(self) -> None:
        self._threads.close()


def _copy_seated(part: int, sources: Sequence[Array], starts: Sequence[int], out: Array) -> None:
    with _seats[part % len(_seats)]:
        _copy(sources, starts, out)


def _in_two(sources: Sequence[Array], starts: Sequence[int]) -> tuple[_Part, _Part]:
    """About two thirds, and the rest: for which a device takes less time than we do."""
    count = len(sources)
    if count >= 3:
        border = count * 2 // 3
        return (sources[:border], starts[:border]), (sources[border:], starts[border:])
    rows = len(sources[-1]) * (3 - count) // 3
    first, last = sources[-1][:rows], sources[-1][rows:]
    return ([*sources[:-1], first], starts), ([last], [starts[-1] + first.size])


def _cut(
    sources: Sequence[Array], starts: Sequence[int], least: int
) -> tuple[Sequence[Array], Sequence[int]]:
    """The same in at least so many parts: arrays, or else rows of them."""
    if len(sources) >= least:
        return sources, starts
    parts, begins = [], []
    for whole, start in zip(sources, starts, strict=True):
        for number in range(least):
            first, last = (len(whole) * each // least for each in (number, number + 1))
            parts.append(whole[first:last])
            begins.append(start + whole[:first].size)
    return parts, begins


def _copy(sources: Sequence[Array], starts: Sequence[int], out: Array) -> None:
    first, count = sources[0], len(sources)
    are_alike = all(each.shape == first.shape for each in sources)
    if are_alike and starts[-1] - starts[0] == first.size * (count - 1):
        # One call: of each by itself Python would hold its lock for more than twice as long.
        place = out[starts[0] : starts[-1] + first.size]
        np.concatenate(sources, out=place.reshape(count * len(first), *first.shape[1:]))
        return
    for start, each in zip(starts, sources, strict=True):
        place = out[start : start + each.size].reshape(each.shape)
        np.copyto(place, each, casting="same_kind")
