"""Shared memory for the pixels of decoding processes, which this process reads without a copy.

A segment is a memory file that both sides map. It is sparse: unwritten pages take no memory. Its
pixels become arrays here, and once the last of them is freed the segment is reused. For a GPU the
first part of each segment is pinned, which saves this process another copy: 150 us for 900 KB.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol, runtime_checkable
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from engine.errors import DeviceError, EngineError

BYTES = 1 << 30  # address space for the pictures of a batch
_KEPT_BYTES = 96 << 20  # kept between two uses; no more of a segment is pinned
_SPARE = 1.25  # pinned bytes for each byte of pixels: the next parts may be larger
_MOST_BYTES = 2 << 30  # total of pinned segments, and of those made while others are free
_OWN = 6  # segments per process, if they fit: pages of others cost a page fault each
_numbers = count()
_log = logging.getLogger("engine")


class NoSegmentError(EngineError):
    """The system has no memory, address space or descriptor for another segment."""


@runtime_checkable
class Pinning(Protocol):
    """A program that reads pinned arrays without a copy."""

    def pin(self, frames: NDArray[Any]) -> None: ...

    def know_pinned(self, frames: NDArray[Any]) -> None:
        """Record that an array's memory is pinned by another array, which outlives it."""
        ...


class Segment:
    """A mapped memory file; `number` identifies it between processes."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.room = BYTES
        self.file = os.memfd_create("engine-pixels")
        self.used = 0  # bytes of memory in use
        self._pinned: NDArray[np.uint8] | None = None  # unpinned when it is collected
        try:
            os.ftruncate(self.file, self.room)
            self._map = mmap.mmap(self.file, self.room)
        except BaseException:
            os.close(self.file)
            raise

    def lend(self, used: int, returned: Callable[[], object]) -> NDArray[np.uint8]:
        """Return an array of `used` bytes; call `returned` once no view of it is left."""
        self.used = max(self.used, used)
        lent = np.frombuffer(self._map, np.uint8, used)
        finalize(lent, returned).atexit = False
        return lent

    @property
    def pinned_bytes(self) -> int:
        return 0 if self._pinned is None else self._pinned.size

    def pin(self, used: int, pinning: Pinning) -> None:
        """Pin at least `used` bytes, unless they are too many to keep; no pixels may be lent."""
        if used <= _KEPT_BYTES:
            self._pinned = None
            whole = np.frombuffer(self._map, np.uint8, min(int(used * _SPARE), _KEPT_BYTES))
            pinning.pin(whole)
            self._pinned = whole

    def trim(self) -> None:
        """Free memory beyond what is worth keeping; nothing may be lent."""
        if self.used > _KEPT_BYTES < self.room:
            os.ftruncate(self.file, _KEPT_BYTES)
            os.ftruncate(self.file, self.room)
            self.used = _KEPT_BYTES

    def drop(self) -> None:
        """Free the memory; nothing may be lent. Other processes' mappings become empty."""
        self._pinned = None
        file, self.file = self.file, -1
        if file >= 0:
            os.ftruncate(file, 0)
            os.close(file)


class Segments:
    """The segments of one decoder, for any number of threads.

    A new one is made if all others hold pixels that are still in use.
    """

    def __init__(self, pinning: Pinning | None = None) -> None:
        self._pinning = pinning
        self._free: list[Segment] = []  # no lock: a finalizer may run at any bytecode
        self._alive: dict[int, Segment] = {}
        self._users = 0

    @property
    def alive(self) -> frozenset[int]:
        """The numbers of all segments whose memory has not been freed."""
        return frozenset(self._alive.copy())

    @property
    def pinned_bytes(self) -> int:
        return sum(each.pinned_bytes for each in self._alive.copy().values())

    def hold(self) -> None:
        """Keep free segments until each hold() has its release()."""
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        self._drop_unused()

    def take(self, known: Collection[int] = ()) -> Segment:
        """Return a segment for exclusive use, until lend(), give_back() or drop().

        The process that will write to it has already mapped the pages of the segments `known`.
        """
        segment = self._free_one(known)
        if segment is not None:
            segment.trim()
            return segment
        try:
            segment = Segment()
        except OSError as error:
            raise NoSegmentError(f"decode: memory: {error.strerror or error}") from error
        self._alive[segment.number] = segment
        return segment

    def _free_one(self, known: Collection[int]) -> Segment | None:
        for each in reversed(self._free.copy()):  # the last one used is still in the CPU caches
            if each.number in known:
                with suppress(ValueError):  # another thread has taken it
                    self._free.remove(each)
                    return each
        if known and len(known) < _OWN:
            used = [each.used for each in self._alive.copy().values()]
            if sum(used) + max(used, default=0) < _MOST_BYTES:
                return None
        with suppress(IndexError):
            return self._free.pop()
        return None

    def give_back(self, segment: Segment) -> None:
        if segment.number in self._alive:
            self._free.append(segment)
        self._drop_unused()

    def lend(self, segment: Segment, used: int, *, is_pinned: bool) -> NDArray[np.uint8]:
        """Return its pixels, pinned if possible; take the segment back once they are freed."""
        pinning = self._pinning if is_pinned else None
        if pinning is not None:
            self._pin(segment, used, pinning)
        lent = segment.lend(used, partial(self.give_back, segment))
        if pinning is not None and used <= segment.pinned_bytes:
            pinning.know_pinned(lent)
        return lent

    def _pin(self, segment: Segment, used: int, pinning: Pinning) -> None:
        if segment.pinned_bytes >= used:
            return
        if self.pinned_bytes - segment.pinned_bytes + int(used * _SPARE) <= _MOST_BYTES:
            try:
                segment.pin(used, pinning)
            except EngineError as error:
                self._pinning = None
                if isinstance(error, DeviceError):  # but not if the program is closed
                    _log.warning("decode: pixels are copied, which is slower: %s", str(error))

    def _drop_unused(self) -> None:
        while self._users <= 0:
            try:
                segment = self._free.pop()
            except IndexError:
                return
            self.drop(segment)

    def drop(self, segment: Segment) -> None:
        self._alive.pop(segment.number, None)
        segment.drop()
