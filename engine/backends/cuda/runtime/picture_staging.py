"""Stage pictures in a slot: their bytes in sequence, and a table for the kernel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from engine.arrays import Array
from engine.backends.base import DevicePixels, Placed, PlacedAlike
from engine.backends.cuda.driver.pinned_memory import begin_of
from engine.backends.cuda.runtime.gather import gather
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
_under_way: list[None] = []  # an entry for each large copy of this process, for any card
_WORTH_A_THREAD = 4 << 20  # bytes: waking a thread costs as much as copying 100 KB
_WORTH_TWO_WAYS = 1 << 20  # bytes: for less, a second upload costs more than it hides


class Arrangement(NamedTuple):
    """Where pictures lie in the block of a slot; pictures on the device take no room.

    The tiles of a picture overlap. They are views of one array, which lies there once.
    """

    starts: Sequence[int]  # offset of each picture's first pixel
    row_steps: Mapping[int, int]  # bytes from a pixel to the one below, by number of a view
    size: int
    arrays: Sequence[Array]  # what is uploaded,
    offsets: Sequence[int]  # and where to


def arrange(pictures: Sequence[Placed]) -> Arrangement | None:
    """Return the arrangement, or None if the CPU must scale: not uint8, or too many bytes."""
    if isinstance(pictures, PlacedAlike):
        step = -(-pictures.arrays[0].size // _ALIGNMENT) * _ALIGNMENT
        top = step * len(pictures)
        every = range(0, top, step)
        return Arrangement(every, {}, top, pictures.arrays, every) if top <= MOST_BYTES else None
    # Tiles fill whole runs, so a few samples suffice; to check all takes as long as the rest.
    are_cut = any(_is_cut(each.pixels) for each in pictures[:: len(pictures) // 2 or 1])
    shared = _shared_parts(pictures) if are_cut else {}
    begun: dict[int, int] = {}  # offsets of shared parts, by their identity
    starts: list[int] = []
    arrays: list[Array] = []
    offsets: list[int] = []
    top = 0
    for number, (pixels, *_) in enumerate(pictures):
        view = shared.get(number)
        if view is not None and id(view.part) in begun:
            starts.append(begun[id(view.part)] + view.start)
            continue
        starts.append(top if view is None else top + view.start)
        if isinstance(pixels, DevicePixels):
            continue
        if pixels.dtype.char != "B":
            return None
        part = pixels
        if view is not None:
            part = view.part
            begun[id(part)] = top
        arrays.append(part)
        offsets.append(top)
        top += -(-part.size // _ALIGNMENT) * _ALIGNMENT
    row_steps = {number: view.row_step for number, view in shared.items()}
    return Arrangement(starts, row_steps, top, arrays, offsets) if top <= MOST_BYTES else None


class _View(NamedTuple):
    """A picture in a part of an array that several pictures need."""

    part: Array
    start: int
    row_step: int


def _shared_parts(pictures: Sequence[Placed]) -> dict[int, _View]:
    """Return the pictures, by number, whose arrays overlap so that together they are smaller."""
    groups: dict[tuple[int, int], tuple[Array, dict[int, Array]]] = {}
    for number, (pixels, *_) in enumerate(pictures):
        if not isinstance(pixels, DevicePixels) and (owner := _owner(pixels)) is not None:
            _, group = groups.setdefault((id(owner), pixels.strides[0]), (owner, {}))
            group[number] = pixels
    found: dict[int, _View] = {}
    for (_, row_step), (owner, group) in groups.items():
        arrays, zero = [*group.values()], begin_of(owner)
        firsts = [begin_of(each) - zero for each in arrays]
        pairs = zip(firsts, arrays, strict=True)
        end = max(first + (len(each) - 1) * row_step + each[0].size for first, each in pairs)
        begin = min(firsts)
        if sum(each.size for each in arrays) > end - begin:
            part = owner.reshape(-1)[begin:end]
            views = (_View(part, first - begin, row_step) for first in firsts)
            found.update(zip(group, views, strict=True))
    return found


def _is_cut(pixels: Array | DevicePixels) -> bool:
    return not (isinstance(pixels, DevicePixels) or pixels.flags.c_contiguous)


def _owner(pixels: Array) -> Array | None:
    """Return the array of bytes that a picture is a part of, if its rows run downwards in it."""
    owner = pixels.base if isinstance(pixels.base, np.ndarray) else pixels
    rows, columns, channels = pixels.strides
    is_plain = (columns, channels) == (pixels.shape[2], 1) and rows > 0
    if not (is_plain and owner.dtype.char == "B" and owner.flags.c_contiguous and pixels.size):
        return None
    return owner


def entries(pictures: Sequence[Placed], arrangement: Arrangement, block: int) -> bytes:
    """Return the bytes of the table: an entry for each picture, by default in the block."""
    if isinstance(pictures, PlacedAlike):
        how = pictures.placement, pictures.exact, pictures.arrays[0].shape
        count = len(pictures)
        return _entries_alike(*how, count, block, arrangement.size // count)
    parts = []
    latest: tuple[Placement, bool, tuple[int, int]] | None = None
    entry = b""
    row_steps = arrangement.row_steps
    places = zip(pictures, arrangement.starts, strict=True)
    for number, ((pixels, placement, exact, _), start) in enumerate(places):
        if isinstance(pixels, DevicePixels):
            pointer, steps = pixels.pointer, (pixels.row_step, pixels.column_step)
        else:
            _, width, channels = pixels.shape
            row_step = row_steps.get(number, width * channels)
            pointer, steps = block + start, (row_step, channels)
        parts.append(pointer.to_bytes(_POINTER_BYTES, sys.byteorder))
        if latest is None or (exact, steps) != latest[1:] or placement is not latest[0]:
            latest, entry = (placement, exact, steps), _entry(placement, exact, steps)
        parts.append(entry)
    return b"".join(parts)


@lru_cache(maxsize=16)
def _entries_alike(
    placement: Placement, exact: bool, shape: tuple[int, ...], count: int, block: int, step: int
) -> bytes:
    _, width, channels = shape
    entry = bytes(_POINTER_BYTES) + _entry(placement, exact, (width * channels, channels))
    table = np.frombuffer(entry * count, ENTRY).copy()
    table["pixels"] = block + step * np.arange(count, dtype=np.uint64)
    return table.tobytes()


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
    """A copier of arrays into pinned memory, which copies large ones with several threads.

    If several callers copy at the same time, as the threads of a stream do, each copies alone:
    together they use all memory bandwidth, and more threads would wait for the GIL.
    """

    def __init__(self) -> None:
        self._threads = ThreadPool(_COPIERS, "cuda-copy")

    def copy(
        self,
        sources: Sequence[Array],
        starts: Sequence[int],
        out: Array,
        send: Callable[[int], object] | None = None,
    ) -> None:
        """Copy each array to its offset; call `send` when a first part of `out` is complete."""
        size = (starts[-1] + sources[-1].size) * out.itemsize
        if size >= 2 * _WORTH_A_THREAD:
            _under_way.append(None)
            try:
                if len(_under_way) > 1:
                    _copy(sources, starts, out)
                else:
                    self._copy_together(sources, starts, out, -(-size // _WORTH_A_THREAD))
            finally:
                _under_way.pop()
            return
        if send is not None and size >= _WORTH_TWO_WAYS:
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
            for first, last in pairwise(borders):
                mine = sources[first:last], starts[first:last]
                copies.append(self._threads.submit(_copy, *mine, out))
        finally:  # no copy may still run when the memory is reused
            for copy in reversed(copies):  # the last one usually ends last: wait once
                copy.exception()
        for copy in copies:
            copy.result()

    def close(self) -> None:
        self._threads.close()


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
    if count == 1:
        place = out[starts[0] : starts[0] + first.size]
        np.copyto(place.reshape(first.shape), first, casting="same_kind")
        return
    are_alike = all(each.shape == first.shape for each in sources)
    if are_alike and starts[-1] - starts[0] == first.size * (count - 1):
        place = out[starts[0] : starts[-1] + first.size]
        are_plain = all(each.flags.c_contiguous and each.dtype == out.dtype for each in sources)
        if not (are_plain and gather(sources, place)):
            np.concatenate(sources, out=place.reshape(count * len(first), *first.shape[1:]))
        return
    for start, each in zip(starts, sources, strict=True):
        place = out[start : start + each.size].reshape(each.shape)
        np.copyto(place, each, casting="same_kind")
