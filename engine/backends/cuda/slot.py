"""A slot: the memory of one call on its way in and out, page-locked here and a block on the card.

A run reads its settings from one place on the card. They end with the pointer to its images, or
with a table of its pictures, which lie in the block of whichever slot the call has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.backends.cuda import pictures

Array = NDArray[Any]

HIERARCHY, POINTER, TABLE = 4, 8, 16  # bytes of the settings; the threshold comes first
_GROWTH = 1.5


@dataclass(frozen=True)
class Sizes:
    """Values of each part; the last two are none for a network without detection layers."""

    images: int  # float32
    rows: int
    outputs: int  # float32
    found: int  # words of all candidates
    found_copied: int  # of those that come back at once

    @property
    def settings_bytes(self) -> int:
        return TABLE + self.rows * pictures.ENTRY.itemsize


@dataclass(frozen=True)
class Job:
    """What to do with what a slot holds."""

    sequences: int
    size: int  # bytes of images or pictures
    has_pictures: bool = False
    decodes: bool = False


class Slot:
    """Made, enlarged and freed on the device's thread; in between it is its caller's alone."""

    def __init__(self, driver: Any, sizes: Sizes) -> None:
        self._driver = driver
        self._allocations: list[Any] = []
        self._staging: tuple[Any, ...] = ()
        self.room = 0  # bytes of images or pictures
        try:
            self.settings = self._page_locked(sizes.settings_bytes, np.uint8)
            self.outputs = self._page_locked(sizes.outputs, np.float32)
            self.found = self._page_locked(sizes.found_copied, np.uint32)
            self.make_room(sizes.images * 4)
        except BaseException:
            self.free()
            raise
        self.numbers = self.settings[:POINTER].view(np.float32)
        self._pointer = self.settings[POINTER:TABLE].view(np.uint64)
        self._table = self.settings[TABLE:].view(pictures.ENTRY)
        no_timing = driver.event_flags.DISABLE_TIMING
        self.arrived, self.done = driver.Event(no_timing), driver.Event(no_timing)

    def make_room(self, size: int) -> None:
        """Enlarge the way in so that later calls seldom have to."""
        size = max(size, min(int(self.room * _GROWTH), pictures.MOST_BYTES))
        self._free_staging()
        block = self._driver.mem_alloc(size)
        self._staging = (block,)
        self.staged = self._driver.pagelocked_empty(size, np.uint8)
        self._staging = (block, self.staged.base)
        self.block, self.room = int(block), size

    def put_images(self, images: Array) -> int:
        """Stage images of any strides; return their bytes."""
        np.copyto(self.images(*images.shape), images, casting="same_kind")
        return images.size * 4

    def images(self, *shape: int) -> Array:
        """The images that are staged, or that the caller is to fill in."""
        self._pointer[0] = self.block
        values: Array = self.staged.view(np.float32)[: int(np.prod(shape))]
        return values.reshape(shape)

    def put_table(self, table: Array) -> None:
        self._table[: len(table)] = table

    def settings_of(self, job: Job, rows: int) -> Array:
        """The part that a run reads."""
        end = TABLE + (rows * pictures.ENTRY.itemsize if job.has_pictures else 0)
        part: Array = self.settings[:end]
        return part

    def free(self) -> None:
        self._free_staging()
        while self._allocations:
            self._allocations.pop().free()
        self.arrived = self.done = None  # here: on another thread PyCUDA could not end them

    def _free_staging(self) -> None:
        staging, self._staging, self.room = self._staging, (), 0
        for each in staging:
            each.free()

    def _page_locked(self, values: int, kind: type[np.generic]) -> Array:
        if values == 0:
            return np.empty(0, kind)
        made: Array = self._driver.pagelocked_empty(values, kind)
        self._allocations.append(made.base)
        return made
