"""Stage pictures in a slot: their bytes, one after the other, and a table for the kernel."""

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
from engine.backends.base import DevicePixels, Placed
from engine.concurrency import fork_safety
from engine.concurrency.thread_pool import ThreadPool
from engine.vision.postprocess import margin_and_ratio
from engine.vision.resize import Placement

_Part: TypeAlias = tuple[Sequence[Array], Sequence[int]]  # arrays and their offsets

# PlacedPicture of kernels/vision/placed_picture.cuh
ENTRY = np.dtype(
    [
        ("pixels", np.uint64),
        ("size", np.int32, 2),
        ("inner", np.int32, 2),
        ("offset", np.int32, 2),
        ("scale", np.float32, 2),
        ("is_letterbox", np.int32),
        ("darkens", np.int32),
        ("steps", np.int32, 2),
        ("margin", np.float64, 2),
        ("ratio", np.float64, 2),
    ]
)
MOST_BYTES = 256 << 20  # for the pictures of one run; more are scaled on the CPU

_ALIGNMENT = 16
_POINTER_BYTES = ENTRY["pixels"].itemsize
_COPIERS = min(4, os.cpu_count() or 1)  # more threads would wait for memory bandwidth and the GIL
_seats = [
    fork_safety.lock() for _ in range(_COPIERS)
]  # shared by all cards, to bound the number of copying threads
_WORTH_A_THREAD = 4 << 20  # bytes: waking a thread costs as much as copying 100 KB
_WORTH_TWO_WAYS = 1 << 20  # bytes: for less, a second upload costs more than it hides


class Arrangement(NamedTuple):
    """The offset of each picture and the size of them all; pictures on the device take no room."""

    starts: list[int]
    size: int

    def on_host(self, pictures: Sequence[Placed]) -> tuple[list[Array], list[int]]:
        """Return the arrays to upload and their offsets."""
        arrays, starts = [], []
        for each, start in zip(pictures, self.starts, strict=True):
            if not isinstance(each.pixels, DevicePixels):
                arrays.append(each.pixels)
                starts.append(start)
        return arrays, starts


def arrange(pictures: Sequence[Placed]) -> Arrangement | None:
    """Return the arrangement, or None if the CPU must scale: not uint8, or too many bytes."""
    starts, top = [], 0
    for pixels, *_ in pictures:
        starts.append(top)
        if isinstance(pixels, DevicePixels):
            continue
        if pixels.dtype.char != "B":
            return None
        top += -(-pixels.size // _ALIGNMENT) * _ALIGNMENT
    return Arrangement(starts, top) if top <= MOST_BYTES else None


def entries(pictures: Sequence[Placed], starts: Sequence[int], block: int) -> bytes:
    """Return the bytes of the table: an entry for each picture, by default in the block."""
    parts = []
    latest: tuple[Placement, bool, tuple[int, int]] | None = None
    entry = b""
    for (pixels, placement, exact, _), start in zip(pictures, starts, strict=True):
        if isinstance(pixels, DevicePixels):
            pointer, steps = pixels.pointer, (pixels.row_step, pixels.column_step)
        else:
            _, width, channels = pixels.shape
            pointer, steps = block + start, (width * channels, channels)
        parts.append(pointer.to_bytes(_POINTER_BYTES, sys.byteorder))
        if latest is None or (exact, steps) != latest[1:] or placement is not latest[0]:
            latest, entry = (placement, exact, steps), _entry(placement, exact, steps)
        parts.append(entry)
    return b"".join(parts)


@lru_cache(maxsize=256)
def _entry(placement: Placement, exact: bool, steps: tuple[int, int]) -> bytes:
    inner = placement.inner
    scale = tuple(
        np.float32(extent - 1) / np.float32(max(scaled - 1, 1))
        for extent, scaled in zip(placement.picture, inner, strict=True)
    )
    is_letterbox = placement.kind == "letterbox"
    where = placement.picture, inner, placement.offset, scale, is_letterbox, exact, steps
    return np.array((0, *where, *margin_and_ratio(placement)), ENTRY).tobytes()[_POINTER_BYTES:]


class Copier:
    """Copies arrays into pinned memory, large ones with several threads."""

    def __init__(self) -> None:
        self._threads = ThreadPool(_COPIERS, "cuda-copy")

    def copy(
        self,
        sources: Sequence[Array],
        starts: Sequence[int],
        out: Array,
        send: Callable[[int], object],
    ) -> None:
        """Copy each array to its offset; call `send` when a first part of `out` is complete."""
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
        finally:  # no copy may still run when the memory is reused
            for copy in reversed(copies):  # the last one usually ends last: wait once
                copy.exception()
        for copy in copies:
            copy.result()

    def close(self) -> None:
        self._threads.close()


def _copy_seated(part: int, sources: Sequence[Array], starts: Sequence[int], out: Array) -> None:
    with _seats[part % len(_seats)]:
        _copy(sources, starts, out)


def _in_two(sources: Sequence[Array], starts: Sequence[int]) -> tuple[_Part, _Part]:
    """Split into about two thirds and the rest, which uploads while the caller still copies."""
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
    """Return at least `least` parts: the arrays, or rows of them."""
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
        # One call holds the GIL for less than half the time of one call for each array.
        place = out[starts[0] : starts[-1] + first.size]
        np.concatenate(sources, out=place.reshape(count * len(first), *first.shape[1:]))
        return
    for start, each in zip(starts, sources, strict=True):
        place = out[start : start + each.size].reshape(each.shape)
        np.copyto(place, each, casting="same_kind")
