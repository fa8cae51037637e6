"""A slot: the memory of one call on its way in and out, page-locked here and a block on the card.

A run reads its settings from one place on the card. They end with the pointer to its images, or
with a table of its pictures, which lie in the block of whichever slot the call has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from engine.arrays import Array
from engine.backends.base import Placed
from engine.backends.cuda.driver.pinned_memory import Part, parts
from engine.backends.cuda.runtime import picture_staging
from engine.backends.cuda.runtime.detection_buffer import HEADER_WORDS, WORD

Key = tuple[bool, bool, bool, int]  # does it decode, suppress, read pictures; sequences

# Bytes of the settings; the threshold comes first.
HIERARCHY, POINTER, SUPPRESSION, TABLE = 4, 8, 16, 48
_THRESHOLDS, _POINTER = Struct("=ff"), Struct("=Q")
_GROWTH = 1.5


@dataclass(frozen=True)
class Sizes:
    """Values of each part; the last three are none for a network without detection layers."""

    images: int  # float32
    rows: int
    outputs: int  # float32
    found: int  # words of all candidates
    found_copied: int  # of those that come back at once
    kept_copied: int  # words of what suppression leaves that come back at once

    @property
    def settings_bytes(self) -> int:
        return TABLE + self.rows * picture_staging.ENTRY.itemsize


class Decoding(NamedTuple):
    """The settings of a run that decodes, as it reads them."""

    thresholds: bytes
    how: bytes  # none where it does not suppress

    @classmethod
    def of(cls, threshold: float, hierarchy: float, how: bytes = b"") -> Decoding:
        return cls(_THRESHOLDS.pack(threshold, hierarchy), how)


class Job(NamedTuple):
    """What to do with what a slot holds."""

    sequences: int
    rows: int
    size: int  # bytes of images or pictures
    has_pictures: bool = False
    decodes: bool = False
    suppresses: bool = False

    @property
    def key(self) -> Key:
        """The same for all runs of which one recording serves."""
        return self.decodes, self.suppresses, self.has_pictures, self.sequences

    @property
    def settings_bytes(self) -> int:
        """How much of the settings a run reads."""
        return TABLE + (self.rows * picture_staging.ENTRY.itemsize if self.has_pictures else 0)


class Slot:
    """Made, enlarged and freed on the device's thread; in between it is its caller's alone."""

    def __init__(self, driver: Any, calls: Any, sizes: Sizes) -> None:
        self._driver = driver
        self._calls = calls
        self._allocations: list[Any] = []
        self._events: list[int] = []
        self._staging: tuple[Any, ...] = ()
        self._finds: tuple[Any, ...] = ()
        self.room = 0  # bytes of images or pictures
        self.found_words = 0  # of what came back of the latest run's candidates
        self.sent = 0  # bytes of images or pictures that went ahead of the rest
        self.parts: list[Part] = []  # what travels from where it lies; else what is staged does
        self.held: Sequence[Array] = ()  # whom those parts belong to
        self.is_there = False  # whether the block has what the latest put brought
        self.is_under_way = False  # nobody has waited for its run
        try:
            self.settings = self._page_locked(sizes.settings_bytes, np.uint8)
            self.settings_there = self._on_card(sizes.settings_bytes)  # until their run begins
            self.returned = self._page_locked(HEADER_WORDS + sizes.outputs, np.float32)
            self.kept = self._page_locked(sizes.kept_copied, np.uint32)
            self.found = np.empty(0, np.uint32)
            if sizes.found_copied:
                self.make_room_for_finds(sizes.found_copied)
            self.make_room(sizes.images * WORD)
            self.arrived, self.done = self._event(), self._event()
        except BaseException:
            self.free()
            raise
        self.settings_at, self.returned_at = pointer_to(self.settings), pointer_to(self.returned)
        self.header, self.outputs = np.split(self.returned, [HEADER_WORDS])
        self.header = self.header.view(np.uint32)
        self.kept_at = pointer_to(self.kept)
        self._settings = self.settings.data

    def clear(self) -> None:
        """Of what an earlier call left, before another puts something in."""
        self.parts, self.held, self.is_there = [], (), False

    def lend(self, arrays: Sequence[Array], starts: Sequence[int]) -> None:
        """Let page-locked arrays travel as they lie, which nobody may change before they have."""
        self.parts, self.held = parts(arrays, starts), arrays

    def make_room(self, size: int) -> None:
        """Enlarge the way in so that later calls seldom have to; where it fails there is none."""
        size = max(size, min(int(self.room * _GROWTH), picture_staging.MOST_BYTES))
        size = -(-size // WORD) * WORD  # whole floats, whatever it grew from
        self._free_staging()
        block = self._driver.mem_alloc(size)
        self._staging = (block,)
        self.staged = self._driver.pagelocked_empty(size, np.uint8)
        self._staging = (block, self.staged.base)
        self.staged_at = pointer_to(self.staged)
        self.block, self.room = int(block), size

    def make_room_for_finds(self, words: int) -> None:
        """Enlarge the way out of candidates likewise."""
        words = max(words, int(self.found.size * _GROWTH))
        made = self._driver.pagelocked_empty(words, np.uint32)  # where it fails the old stays
        self._free_finds()
        self.found, self._finds = made, (made.base,)
        self.found_at = pointer_to(self.found)

    def put_decoding(self, decoding: Decoding) -> None:
        """What a run that decodes reads."""
        thresholds, how = decoding
        self._settings[: len(thresholds)] = thresholds
        self._settings[SUPPRESSION : SUPPRESSION + len(how)] = how

    def images(self) -> Array:
        """Where a run reads its images from, for the caller to fill in."""
        self._settings[POINTER:SUPPRESSION] = _POINTER.pack(self.block)
        values: Array = self.staged.view(np.float32)
        return values

    def put_table(self, placed: Sequence[Placed], starts: Sequence[int]) -> None:
        """Where a run reads pictures from, and how they lie."""
        table = picture_staging.entries(placed, starts, self.block)
        self._settings[TABLE : TABLE + len(table)] = table

    def settings_of(self, job: Job) -> memoryview:
        """As much of the settings as a run reads."""
        return self._settings[: job.settings_bytes]

    def free(self) -> None:
        self._free_staging()
        self._free_finds()
        while self._allocations:
            self._allocations.pop().free()
        while self._events:
            self._calls.free_event(self._events.pop())

    def _free_staging(self) -> None:
        staging, self._staging, self.room = self._staging, (), 0
        for each in staging:
            each.free()

    def _free_finds(self) -> None:
        finds, self._finds = self._finds, ()
        for each in finds:
            each.free()

    def _event(self) -> int:
        self._events.append(self._calls.event())
        return self._events[-1]

    def _on_card(self, size: int) -> int:
        self._allocations.append(self._driver.mem_alloc(size))
        return int(self._allocations[-1])

    def _page_locked(self, values: int, kind: type[np.generic]) -> Array:
        if values == 0:
            return np.empty(0, kind)
        made: Array = self._driver.pagelocked_empty(values, kind)
        self._allocations.append(made.base)
        return made


def pointer_to(values: Array) -> int:
    """Where they begin in the host's memory."""
    place: int = values.__array_interface__["data"][0]
    return place
