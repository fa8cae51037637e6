"""A slot: the staging memory of one call, pinned on the host and a block on the card.

A run reads its settings from one address on the card. The settings end with the pointer to its
images, or with a table of its pictures; both lie in the block of the slot.

A call takes a slot, and its inputs go through these states:

1. Staged (program.py): they are copied to `staged`, or pinned arrays are lent as `parts`, or they
   are on the card already. While the device is idle, the first `sent` bytes are uploaded meanwhile.
2. Sent (device_program.py): the rest is uploaded. From now on `is_there` says that the block has
   the inputs, so that a repeated run reads the block and not what the caller may have changed.
3. Under way: the run is enqueued, and `done` is recorded after it and its downloads.
4. Waited for: `is_under_way` is False again, and the results in the slot may be read.

The slot then goes back, with `recipe` and `job` of its settings: the next call with the same recipe
stages only its pixels. `clear` forgets them, and what the previous call has lent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.arrays import Array
from engine.backends.base import Placed
from engine.backends.cuda.driver.pinned_memory import Part, begin_of, parts
from engine.backends.cuda.runtime import picture_staging
from engine.backends.cuda.runtime.detection_buffer import HEADER_WORDS, WORD
from engine.backends.cuda.runtime.picture_staging import Arrangement
from engine.concurrency.cached_property import cached_property
from engine.vision.resize import Placement

if TYPE_CHECKING:
    from engine.backends.cuda.runtime.device_memory import DeviceMemory

Key = tuple[bool, bool, bool, int]  # decodes, suppresses, has pictures; sequences

# Bytes of the settings; the threshold comes first.
HIERARCHY, POINTER, SUPPRESSION, TABLE = 4, 8, 16, 48
_THRESHOLDS, _POINTER = Struct("=ff"), Struct("=Q")
_FIRST_PIXELS = slice(TABLE, TABLE + _POINTER.size)  # the pointer of the first picture
_GROWTH = 1.5


def settings_size(pictures: int) -> int:
    """Return the bytes of the settings of a run, with the table of its pictures at their end."""
    return TABLE + pictures * picture_staging.ENTRY.itemsize


class Decoding(NamedTuple):
    """The settings of a decoding run as the kernels read them."""

    thresholds: bytes
    how: bytes  # empty without suppression

    @classmethod
    def of(cls, threshold: float, hierarchy: float, how: bytes = b"") -> Decoding:
        return cls(_THRESHOLDS.pack(threshold, hierarchy), how)


@dataclass(frozen=True)
class Job:
    """The work to do on the contents of a slot."""

    sequences: int
    rows: int
    size: int  # bytes of images or pictures
    has_pictures: bool = False
    decodes: bool = False
    suppresses: bool = False

    @cached_property
    def key(self) -> Key:
        """The key of the recorded graph: equal for all runs that it serves."""
        return self.decodes, self.suppresses, self.has_pictures, self.sequences

    @cached_property
    def settings_bytes(self) -> int:
        """Bytes of the settings that the run reads."""
        return settings_size(self.rows if self.has_pictures else 0)


class Recipe(NamedTuple):
    """What runs of one array have in common: everything but the pixels."""

    placement: Placement
    exact: bool
    decoding: Decoding


class Slot:
    """Allocated, grown and freed on the device's thread; used by one caller at a time."""

    def __init__(self, driver: Any, calls: Any, memory: DeviceMemory) -> None:
        self._driver = driver
        self._calls = calls
        self._allocations: list[Any] = []
        self._events: list[int] = []
        self._staging: list[Any] = []
        self._finds: list[Any] = []
        self.room = 0  # bytes for images or pictures
        self.found_words = 0  # words of candidates that the last run copied back
        self.sent = 0  # bytes of images or pictures that were uploaded ahead of the rest
        self.parts: list[Part] = []  # pinned sources to upload from; if empty, upload `staged`
        self.held: Sequence[object] = ()  # owners of those sources and of pictures on the card
        self.recipe: Recipe | None = None  # the recipe by which the settings are written
        self.job = Job(0, 0, 0)  # the job of that recipe
        self.is_there = False  # whether the block on the card has the inputs
        self.is_under_way = False  # whether a run was enqueued that no one has waited for
        self._most_outputs = memory.output_values
        self.outputs: Array | None = None
        try:
            self.settings = self._page_locked(memory.settings_bytes, np.uint8)
            self._allocations.append(self._driver.mem_alloc(memory.settings_bytes))
            # The run copies them to their final address when it starts.
            self.settings_there = int(self._allocations[-1])
            self.kept = self._page_locked(memory.keep.near_words, np.uint32)
            self.found = np.empty(0, np.uint32)
            if memory.room is not None:
                self.make_room_for_finds(memory.room.copied_words)
            self.make_room(memory.image_values)  # a byte per value; floats make it grow
            self.arrived, self.done = self._event(), self._event()
        except BaseException:
            self.free()
            raise
        self.settings_at = begin_of(self.settings)
        self.kept_at = begin_of(self.kept)
        self._settings = self.settings.data

    def clear(self) -> None:
        """Forget the inputs of the previous call."""
        self.parts, self.held, self.is_there, self.recipe = [], (), False, None

    def lend(self, arrays: Sequence[Array], starts: Sequence[int]) -> None:
        """Upload straight from pinned arrays, which must not change until the upload is done."""
        self.parts, self.held = parts(arrays, starts), arrays

    def read_in_place(self, picture: Array, pointer: int) -> None:
        """Let the kernels read the only picture in the caller's memory, without an upload."""
        self.parts, self.held, self.sent = [], (picture,), picture.size
        self._settings[_FIRST_PIXELS] = _POINTER.pack(pointer)

    def read_block(self) -> None:
        """Let the kernels read the only picture in the block."""
        self._settings[_FIRST_PIXELS] = _POINTER.pack(self.block)

    def make_room(self, size: int) -> None:
        """Grow the input memory geometrically; after a failure the slot has none."""
        size = max(size, min(int(self.room * _GROWTH), picture_staging.MOST_BYTES))
        size = -(-size // WORD) * WORD  # whole floats
        self.room = 0
        _free(self._staging)
        self._staging.append(self._driver.mem_alloc(size))
        self.block = int(self._staging[0])
        self.staged = self._driver.pagelocked_empty(size, np.uint8)
        self._staging.append(self.staged.base)
        self.staged_at, self.room = begin_of(self.staged), size

    def make_room_for_outputs(self) -> None:
        """Allocate the memory for outputs, which runs that end with boxes do not need."""
        made = self._page_locked(HEADER_WORDS + self._most_outputs, np.float32)
        self.returned_at = begin_of(made)
        header, self.outputs = np.split(made, [HEADER_WORDS])
        self.header = header.view(np.uint32)

    def make_room_for_finds(self, words: int) -> None:
        """Grow the memory for candidates geometrically."""
        words = max(words, int(self.found.size * _GROWTH))
        made = self._driver.pagelocked_empty(words, np.uint32)  # on failure the old one stays
        _free(self._finds)
        self._finds.append(made.base)
        self.found = made
        self.found_at = begin_of(self.found)

    def put_decoding(self, decoding: Decoding) -> None:
        """Write the settings of a decoding run."""
        thresholds, how = decoding
        self._settings[: len(thresholds)] = thresholds
        if how:
            self._settings[SUPPRESSION:TABLE] = how[: -_POINTER.size] + _POINTER.pack(self.kept_at)

    def images(self) -> Array:
        """Return the pinned memory for images, and point the settings at its block."""
        self._settings[POINTER:SUPPRESSION] = _POINTER.pack(self.block)
        values: Array = self.staged.view(np.float32)
        return values

    def put_table(self, placed: Sequence[Placed], arrangement: Arrangement) -> None:
        """Write the table of pictures into the settings."""
        table = picture_staging.entries(placed, arrangement, self.block)
        self._settings[TABLE : TABLE + len(table)] = table

    def settings_of(self, job: Job) -> memoryview:
        """Return the part of the settings that the run reads."""
        return self._settings[: job.settings_bytes]

    def free(self) -> None:
        self.room = 0
        for each in (self._staging, self._finds, self._allocations):
            _free(each)
        while self._events:
            self._calls.free_event(self._events.pop())

    def _event(self) -> int:
        self._events.append(self._calls.event())
        return self._events[-1]

    def _page_locked(self, values: int, kind: type[np.generic]) -> Array:
        if values == 0:
            return np.empty(0, kind)
        made: Array = self._driver.pagelocked_empty(values, kind)
        self._allocations.append(made.base)
        return made


def _free(allocations: list[Any]) -> None:
    while allocations:
        allocations.pop().free()
