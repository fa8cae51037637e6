"""CudaProgram: what callers on any thread hold of a network on a device.

They fill and read a slot of page-locked memory of their own; the device's thread runs one call
after the other. The host sees float32 (rows, channels, height, width).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from engine.backends.cuda import candidates
from engine.backends.cuda.context import Context
from engine.backends.cuda.gpu import Target
from engine.backends.cuda.resident import SETTINGS, Resident, Slot
from engine.errors import EngineError, InputError
from engine.plan.build import Plan

Array = NDArray[Any]


class CudaProgram:
    """Safe for many threads; each gets the answer to its own images."""

    def __init__(
        self, context: Context, plan: Plan, target: Target, *, has_graphs: bool = True
    ) -> None:
        self.plan = plan
        self.batch = target.batch
        self._context = context
        self._is_closed = False
        self._room = candidates.room(plan, target.batch)
        self._resident = context.run(
            partial(Resident, context, plan, target, room=self._room, has_graphs=has_graphs)
        )
        self.memory = self._resident.memory
        self._slots: SimpleQueue[Slot] = SimpleQueue()
        for slot in self._resident.slots:
            self._slots.put(slot)
        # Whoever collects this may be any thread, at any moment: it may not wait.
        finalize(self, context.post, self._resident.free)

    def forward(self, images: Array) -> tuple[Array, ...]:
        sequences = self._count_sequences(images)
        with self._slot(images) as slot:
            self._context.run(partial(self._resident.forward, slot, sequences))
            return self._split(slot.outputs, sequences)

    def forward_on_card(self, images: int, outputs: int, *, rows: int) -> None:
        """As forward, from one pointer of this card to another; the outputs follow each other."""
        self.check_usable()
        sequences = rows // self.plan.steps
        self._context.run(partial(self._resident.forward_on_card, images, outputs, sequences))

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        if self._room is None:
            raise InputError("detect: expected a network with a detection layer, got none")
        sequences = self._count_sequences(images)
        with self._slot(images) as slot:
            slot.sent[:2] = threshold, hierarchy
            records = self._context.run(partial(self._resident.detect, slot, sequences))
        return self._room.sorted_rows(records, sequences)

    def measure(self, images: Array, *, repeats: int = 20) -> list[float]:
        """Milliseconds that each of so many runs took on the device, without copies."""
        sequences = self._count_sequences(images)
        with self._slot(images) as slot:
            return self._context.run(partial(self._resident.measure, slot, sequences, repeats))

    def reset(self) -> None:
        self.check_usable()
        self._context.run(self._resident.reset)

    def close(self) -> None:
        """Free what the program holds, once the calls under way have their answers."""
        if self._is_closed or not self._context.is_here:
            return
        self._is_closed = True
        slots = [self._slots.get() for _ in self._resident.slots]
        self._context.run(self._resident.free)
        for slot in slots:  # whoever waits for one is to be told
            self._slots.put(slot)

    def _count_sequences(self, images: Array) -> int:
        steps, sides = self.plan.steps, self.plan.source.shape.sides
        most = self.batch * steps
        if images.dtype.kind != "f":
            raise InputError(f"images: expected float32, got {images.dtype}")
        if images.ndim != 4 or images.shape[1:] != sides:
            expected = ", ".join(map(str, ("rows", *sides)))
            raise InputError(f"images: expected ({expected}), got {images.shape}")
        rows = len(images)
        if not 0 < rows <= most:
            raise InputError(f"images: expected 1 to {most} rows, got {rows}")
        if rows % steps:
            raise InputError(f"images: expected a multiple of {steps} time steps, got {rows} rows")
        return rows // steps

    @contextmanager
    def _slot(self, images: Array) -> Iterator[Slot]:
        """A slot that holds the images; there are few, so callers take turns."""
        self._context.check_process()  # a child would wait here for ever
        slot = self._slots.get()
        try:
            self.check_usable()
            values = slot.sent[SETTINGS : SETTINGS + images.size].reshape(images.shape)
            np.copyto(values, images, casting="same_kind")
            yield slot
        finally:
            self._slots.put(slot)

    def _split(self, values: Array, sequences: int) -> tuple[Array, ...]:
        results = []
        end = 0
        for tensor in self.plan.outputs:
            start, end = end, end + sequences * tensor.steps * tensor.shape.size
            results.append(values[start:end].reshape(-1, *tensor.shape.sides).copy())
        return tuple(results)

    def check_usable(self) -> None:
        """Raise if the program is closed, or was made before this process was forked."""
        self._context.check_process()
        if self._is_closed:
            raise EngineError("program: closed; compile the plan again")
