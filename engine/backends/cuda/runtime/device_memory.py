"""The blocks of device memory that a program has from its compilation on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.backends.base import Memory
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.driver.pycuda_loader import gib
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.lower.weights import Weights
from engine.backends.cuda.runtime import detection_buffer
from engine.backends.cuda.runtime.detection_buffer import HEADER_WORDS, WORD
from engine.backends.cuda.runtime.nms_buffer import Keep
from engine.backends.cuda.runtime.slot import settings_size
from engine.errors import DeviceError


class DeviceMemory:
    """Pointers to blocks that are allocated together; 0 for an empty one."""

    def __init__(self, context: Context, lowered: Lowered, weights: Weights, slots: int) -> None:
        plan, target, layout = lowered.plan, lowered.target, lowered.layout
        rows = target.rows(plan.source)
        self.room = room = detection_buffer.room(plan, rows)
        self.keep = keep = Keep(0 if room is None else rows)
        self.image_values = rows * plan.source.shape.size
        self.output_values = sum(target.rows(each) * each.shape.size for each in plan.outputs)
        self.settings_bytes = settings = settings_size(rows)
        self.found_words = 0 if room is None else room.words
        self._context = context
        self._blocks: list[Any] = []
        returned = HEADER_WORDS + self.output_values
        words = returned + self.found_words + keep.words
        buffers = (1 + slots) * settings + words * WORD + keep.list_bytes
        self.fixed = Memory(weights.size, layout.size + buffers, layout.workspace)
        needed = self.fixed.total + slots * self.image_values
        free = context.free_memory()
        if needed > free:  # the driver's own error has no numbers
            raise DeviceError(
                f"{context.name}: out of memory: this network needs {gib(needed)}, "
                f"{gib(free)} free. Try a smaller batch, or --device cpu"
            )
        try:
            self.weights = self._allocate(weights.size)
            self.activations = self._allocate(layout.size)
            self.workspace = self._allocate(layout.workspace)
            self.settings = self._allocate(settings)
            self.returned = self._allocate(returned * WORD)
            self.found = self._allocate(self.found_words * WORD)
            self.kept = self._allocate(keep.words * WORD)
            self.lists = self._allocate(keep.list_bytes)
        except BaseException:
            self.free()
            raise
        self.outputs = self.returned + HEADER_WORDS * WORD
        self.records = self.found + HEADER_WORDS * WORD

    def zero_activations(self, parts: Iterable[tuple[int, int]]) -> None:
        for offset, size in parts:
            self._context.zero(self.activations + offset, size)

    def free(self) -> None:
        while self._blocks:
            self._blocks.pop().free()

    def _allocate(self, size: int) -> int:
        if size == 0:
            return 0
        self._blocks.append(self._context.driver.mem_alloc(size))
        return int(self._blocks[-1])
