"""How pictures lie in a slot: their bytes one behind the other, and a table of where each goes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.backends.base import Placed
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
    ]
)
MOST_BYTES = 256 << 20  # of one run's pictures: more are scaled on the CPU

_ALIGNMENT = 16
_COPIERS = 4
_WORTH_A_THREAD = 1 << 20  # bytes


def bytes_of(pictures: Sequence[Placed]) -> int | None:
    """The room that they need; None if they are to be scaled on the CPU: no bytes, or too many."""
    if any(each.pixels.dtype != np.uint8 for each in pictures):
        return None
    size = sum(_aligned(each.pixels.nbytes) for each in pictures)
    return size if size <= MOST_BYTES else None


def table(pictures: Sequence[Placed], pointer: int) -> Array:
    """An entry for each of the pictures, which lie from `pointer` on."""
    entries = b"".join(_entry(each.placement, each.exact) for each in pictures)
    made = np.frombuffer(bytearray(entries), ENTRY)
    sizes = (_aligned(each.pixels.nbytes) for each in pictures)
    made["pixels"] = list(accumulate(sizes, initial=pointer))[:-1]
    return made


@lru_cache(maxsize=256)
def _entry(placement: Placement, exact: bool) -> bytes:
    """All of it but the pointer."""
    inner = placement.inner
    scale = tuple(
        np.float32(extent - 1) / np.float32(max(scaled - 1, 1))
        for extent, scaled in zip(placement.picture, inner, strict=True)
    )
    is_letterbox = placement.kind == "letterbox"
    entry = (0, placement.picture, inner, placement.offset, scale, is_letterbox, exact)
    return np.array(entry, ENTRY).tobytes()


class Copier:
    """Copies pictures into page-locked memory; many bytes are copied by several threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_COPIERS, thread_name_prefix="cuda-copy")  # when used

    def copy(self, pictures: Sequence[Placed], out: Array) -> None:
        starts = accumulate((_aligned(each.pixels.nbytes) for each in pictures), initial=0)
        pairs = [
            (out[start : start + each.pixels.nbytes], each.pixels.reshape(-1))
            for start, each in zip(starts, pictures, strict=False)
        ]
        if len(pairs) == 1 or sum(source.size for _, source in pairs) < _WORTH_A_THREAD:
            _copy(pairs)
            return
        list(self._threads.map(_copy, [pairs[first::_COPIERS] for first in range(_COPIERS)]))

    def close(self) -> None:
        self._threads.shutdown()


def _copy(pairs: Sequence[tuple[Array, Array]]) -> None:
    for target, source in pairs:
        np.copyto(target, source)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
