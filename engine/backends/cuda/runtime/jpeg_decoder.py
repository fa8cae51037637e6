"""Decode batches of JPEGs by the JPEG engine of a card, in memory that its programs read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import accumulate
from queue import SimpleQueue

import numpy as np

from engine.arrays import Array
from engine.backends.base import DecodedJpeg
from engine.backends.cuda.driver import nvjpeg
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.ops.gpu import align
from engine.backends.cuda.ops.target import COLOURS
from engine.backends.cuda.runtime.device_blocks import DeviceBlocks
from engine.errors import DeviceError
from engine.vision.plain_jpeg import PlainJpeg

_UNITS = 2  # one parses and submits a batch while the engine decodes that of the other

_log = logging.getLogger("engine")


class _Unit:
    """A decoder of the library with its stream; it decodes one batch at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        api = context.driver_api
        self._stream, self._event = api.new_stream(), api.event()
        try:
            self._library = nvjpeg.BatchDecoder()
        except BaseException:
            self._free()
            raise

    def decode(self, jpegs: Sequence[PlainJpeg], images: Array) -> list[bool]:
        """Decode and wait; tell for each JPEG whether it was decoded."""
        if self._run(jpegs, images):
            return [True] * len(jpegs)
        # One JPEG that is refused stops the batch.
        usable = [self._library.supports(jpeg) for jpeg in jpegs]
        left = [jpeg for jpeg, is_usable in zip(jpegs, usable, strict=True) if is_usable]
        if left and self._run(left, images[usable]):
            return usable
        return [False] * len(jpegs)

    def _run(self, jpegs: Sequence[PlainJpeg], images: Array) -> bool:
        api = self._context.driver_api
        try:
            return self._library.decode(jpegs, images, self._stream)
        finally:  # the memory is used again, also after a refusal or an error
            api.record(self._event, self._stream)
            api.wait(self._event)

    def close(self) -> None:
        self._library.close()
        self._free()

    def _free(self) -> None:
        self._context.driver_api.free_event(self._event)
        self._context.driver_api.free_stream(self._stream)


class CardJpegDecoder:
    """A decoder of the JPEGs that the card can decode, for any thread."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._blocks = DeviceBlocks(context)
        self._units: SimpleQueue[_Unit | None] = SimpleQueue()  # None once they are closed
        self._made = 0
        self.is_usable = True
        self._counts = [0, 0]  # decoded here, and left to the CPU
        context.run(nvjpeg.check_version)
        try:
            for _ in range(_UNITS):
                self._units.put(context.run(lambda: _Unit(context), _Unit.close))
                self._made += 1
        except BaseException:
            self._close_units()
            raise

    def decode(self, jpegs: Sequence[PlainJpeg]) -> list[DecodedJpeg | None]:
        """Return the pixels of each JPEG, or None where the CPU must decode it.

        After a failure, which is logged, the CPU decodes all of them.
        """
        found: list[DecodedJpeg | None] = [None] * len(jpegs)
        if self.is_usable:
            try:
                found = self._decode(jpegs)
            except Exception as error:  # whatever it is, the CPU can go on
                self._fail(str(error) or type(error).__name__)
        decoded = len(found) - found.count(None)
        self._counts[0] += decoded
        self._counts[1] += len(found) - decoded
        return found

    def _decode(self, jpegs: Sequence[PlainJpeg]) -> list[DecodedJpeg | None]:
        pitches = [each.width * COLOURS for each in jpegs]
        sizes = [align(pitch * each.height) for pitch, each in zip(pitches, jpegs, strict=True)]
        *starts, size = accumulate(sizes, initial=0)
        lease = self._blocks.lease(size)
        if lease is None:
            return [None] * len(jpegs)
        images = np.zeros(len(jpegs), nvjpeg.IMAGE)
        images["channel"][:, 0] = np.array(starts, np.uint64) + np.uint64(lease.pointer)
        images["pitch"][:, 0] = pitches
        with self._context.entered():
            unit = self._units.get()
            try:
                are_decoded = [False] * len(jpegs) if unit is None else unit.decode(jpegs, images)
            finally:
                self._units.put(unit)
        return [
            DecodedJpeg(lease.pointer + start, pitch, lease) if is_decoded else None
            for start, pitch, is_decoded in zip(starts, pitches, are_decoded, strict=True)
        ]

    def _fail(self, reason: str) -> None:
        if self.is_usable:
            self.is_usable = False
            _log.warning(
                "%s: decode: gpu: %s. The CPU decodes JPEGs from now on", self._context.name, reason
            )

    def close(self) -> None:
        """Free everything, once the calls under way have ended."""
        self.is_usable = False  # later calls leave everything to the CPU
        try:
            self._close_units()
        finally:
            self._blocks.close()
        name, (here, left) = self._context.name, self._counts
        _log.info("%s: decoded %d JPEGs; the CPU decoded %d others", name, here, left)

    def _close_units(self) -> None:
        """Close each unit when it is idle; callers that wait for one get None."""
        while self._made:  # an interrupted close can be repeated
            if (unit := self._units.get()) is not None:
                self._made -= 1
                try:
                    self._context.run(unit.close)
                except DeviceError:  # the card is lost: nothing is left to close
                    self._made = 0
        self._units.put(None)
