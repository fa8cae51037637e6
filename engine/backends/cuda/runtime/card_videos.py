"""Convert video frames that the card has decoded to RGB, in memory that programs read.

FFmpeg decodes on the card, in this context and in the order of the legacy default stream.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from weakref import WeakSet

import numpy as np

from engine.arrays import Array
from engine.backends.base import DeviceFrame, Nv12
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.driver.loaded_kernels import load_together
from engine.backends.cuda.ops.gpu import THREADS, align
from engine.backends.cuda.ops.target import COLOURS
from engine.backends.cuda.runtime.device_blocks import DeviceBlocks, Lease
from engine.concurrency import fork_safety
from engine.vision import yuv

_KERNEL = "frame_to_rgb"
_PACK = 4  # pixels of a work item
_TOGETHER = 8  # frames of one lease, which takes longer than a frame's kernel
_MOST_TOGETHER = 64 << 20  # bytes
_DECODER_STREAM = 0  # CU_STREAM_LEGACY
_PATIENCE_SECONDS, _GLANCE_SECONDS = 0.3, 0.002
_AHEAD = 4  # frames whose conversion may be under way, so that their surfaces are in use


class CardVideos:
    """A factory of intakes, one for each video, for any thread."""

    def __init__(self, context: Context, number: int) -> None:
        self.number = number
        self._context = context
        self._blocks = DeviceBlocks(context)
        self._intakes: WeakSet[CardIntake] = WeakSet()
        self._lock = fork_safety.lock()

    def held(self) -> AbstractContextManager[None]:
        return self._context.held()

    def entered(self) -> AbstractContextManager[None]:
        return self._context.entered()

    def intake(self) -> CardIntake:
        made = self._context.run(lambda: CardIntake(self._context, self._blocks), CardIntake.free)
        with self._lock:
            self._intakes.add(made)
        return made

    def close(self) -> None:
        with self._lock:
            intakes = list(self._intakes)
        for each in intakes:
            each.close()
        self._blocks.close()


class CardIntake:
    """An intake of one video's frames, for one thread at a time; made on the device's thread."""

    def __init__(self, context: Context, blocks: DeviceBlocks) -> None:
        api = context.driver_api
        self._context = context
        self._blocks = blocks
        self._kernels = context.kernels("float32")
        load_together([(self._kernels, compiler.unit_of(_KERNEL))])
        self._most_blocks = context.card.multiprocessors * 8
        self._stream = api.new_stream()
        self._decoded = api.event()
        self._converted = [api.event() for _ in range(_AHEAD)]
        self._owners: list[object] = [None] * _AHEAD
        self._count = 0  # frames taken
        self._ready = 0.0  # all before this one are converted
        self._lease: Lease | None = None  # for a few frames
        self._size = self._left = 0  # bytes of a frame, and how many more have room there
        self._is_short = False  # the latest wait for memory was in vain
        self._is_closed = False
        self._taking = fork_safety.lock()
        self._waiting = fork_safety.lock(inner=True)

    def take(self, frame: Nv12, owner: object) -> DeviceFrame | None:
        """Start to convert a frame.

        Return None if the intake is closed, memory is short, or the colour matrix is unknown.
        """
        factors = yuv.factors(frame.matrix, is_full=frame.is_full)
        with self._taking:
            if factors is None or self._is_closed:
                return None
            return self._convert(frame, factors, owner)

    def _convert(
        self, frame: Nv12, factors: Mapping[str, int], owner: object
    ) -> DeviceFrame | None:
        width, height = frame.size
        packs = -(-width // _PACK)
        row_step = packs * _PACK * COLOURS
        lease = self._room(row_step * height)
        if lease is None:
            return None
        pointer = lease.pointer + self._left * self._size
        place, api = self._count % _AHEAD, self._context.driver_api
        self._wait(self._count - _AHEAD)
        arguments = {
            "luma": frame.luma,
            "luma_step": frame.luma_step,
            "chroma": frame.chroma,
            "chroma_step": frame.chroma_step,
            "out": pointer,
            "packs": packs * height,
            "width": width,
            **factors,
        }
        values = compiler.in_order(_KERNEL, arguments)
        blocks = min(-(-packs * height // THREADS), self._most_blocks)
        with self._context.enqueue_lock:
            api.record(self._decoded, _DECODER_STREAM)
            api.wait_for(self._stream, self._decoded)
            self._kernels.launch(_KERNEL, (blocks, 1, 1), THREADS, values, stream=self._stream)
            api.record(self._converted[place], self._stream)
        self._owners[place] = owner, lease
        wait = partial(self._wait, self._count)
        self._count += 1
        shape = height, row_step // COLOURS, COLOURS
        to_host = partial(_pixels, self._context, shape, pointer, lease, width, wait)
        return DeviceFrame(pointer, row_step, lease, wait, to_host)

    def _room(self, size: int) -> Lease | None:
        """Return a lease with room for a frame after `_left` others."""
        size = align(size)
        if self._lease is None or not self._left or size != self._size:
            together = max(1, min(_TOGETHER, _MOST_TOGETHER // size))
            self._lease = self._leased(size * together)
            self._size, self._left = size, together
        if self._lease is not None:
            self._left -= 1
        return self._lease

    def _leased(self, size: int) -> Lease | None:
        """Wait a little for memory that other videos give back, unless that was in vain before."""
        if (lease := self._blocks.lease(size)) is None:
            self._wait(self._count - 1)
            self._owners = [None] * _AHEAD  # with the leases of frames that are no longer used
            end = time.monotonic() + (0 if self._is_short else _PATIENCE_SECONDS)
            while (lease := self._blocks.lease(size)) is None and time.monotonic() < end:
                time.sleep(_GLANCE_SECONDS)
        self._is_short = lease is None
        return lease

    def _wait(self, number: int) -> None:
        """Wait until a frame is converted; its event may have been recorded again since."""
        if number < self._ready:  # as are negative ones
            return
        with self._waiting:
            if number >= self._ready:
                self._context.wait(self._converted[number % _AHEAD])
                self._ready = number + 1

    def close(self) -> None:
        """Close the intake; frames that were taken stay."""
        with self._taking:
            if self._is_closed:
                return
            self._is_closed = True
            self._wait(self._count - 1)
            with self._waiting:
                self._ready = math.inf
            self._owners.clear()
            self._lease = None
        self._context.run(self.free)

    def free(self) -> None:
        api = self._context.driver_api
        for event in (self._decoded, *self._converted):
            api.free_event(event)
        api.free_stream(self._stream)


def _pixels(
    context: Context,
    shape: tuple[int, int, int],
    pointer: int,
    _: Lease,  # keeps the memory alive
    width: int,
    wait: partial[None],
) -> Array:
    wait()
    pixels = np.empty(shape, np.uint8)
    context.run(partial(context.driver.memcpy_dtoh, pixels, pointer))
    return np.ascontiguousarray(pixels[:, :width])
