"""The part of a program that lives on the device's thread; it alone allocates, copies and waits.

A run copies a block in, replays what was enqueued for that many rows, and copies a block out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.backends.base import Memory
from engine.backends.cuda import graph, memory
from engine.backends.cuda.candidates import HEADER_WORDS, WORD, Room
from engine.backends.cuda.context import Context
from engine.backends.cuda.driver import gib
from engine.backends.cuda.gpu import Candidates, Gpu, Place, Target
from engine.backends.cuda.graph import Graph
from engine.backends.cuda.memory import Layout, Weights
from engine.errors import DeviceError
from engine.plan.build import Plan

Array = NDArray[Any]

SETTINGS = 4  # words before the images: threshold, hierarchy, and what keeps 16 bytes
SLOTS = 2  # one is filled while the other is on the device
_MOST_GRAPHS = 8


@dataclass(frozen=True)
class Slot:
    """Page-locked memory of one call on its way in and out."""

    sent: Array  # settings, then images
    outputs: Array
    found: Array  # the header and the first records of the candidates


class Resident:
    """Memory, kernels and graphs of one program. Made, used and freed on the device's thread."""

    def __init__(
        self, context: Context, plan: Plan, target: Target, *, room: Room | None, has_graphs: bool
    ) -> None:
        self._context = context
        self._driver = context.driver
        self._plan = plan
        self._room = room
        self._has_graphs = has_graphs
        self._gpu: Gpu | None = None
        self._allocations: list[Any] = []
        self._graphs: dict[tuple[bool, int], Graph] = {}
        self._warm: set[tuple[bool, int]] = set()
        self._is_tf32 = target.precision == "tf32"
        self._runs = [(memory.runner(op).run, op) for op in plan.ops]
        self._decoders = [(memory.runner(head).run, head) for head in plan.heads]
        kernels = context.kernels(target.precision)
        layout = memory.lay_out(plan, target)
        weights = memory.lay_out_weights(plan, target)
        workspace = memory.workspace_bytes(plan, target)
        sent = SETTINGS + target.rows(plan.source) * plan.source.shape.size
        outputs = sum(target.rows(tensor) * tensor.shape.size for tensor in plan.outputs)
        found = 0 if room is None else room.words
        border = (sent + outputs + found) * WORD
        self.memory = Memory(weights.size, layout.size + border, workspace)
        self._check_room()
        try:
            weights_at = self._allocate(weights.size)
            self._activations = self._allocate(layout.size)
            workspace_at = self._allocate(workspace)
            self._sent = self._allocate(sent * WORD)
            self._outputs = self._allocate(outputs * WORD)
            self._found = self._allocate(found * WORD)
            self.slots = [
                Slot(
                    sent=self._page_locked(sent, np.float32),
                    outputs=self._page_locked(outputs, np.float32),
                    found=self._page_locked(0 if room is None else room.copied_words, np.uint32),
                )
                for _ in range(SLOTS)
            ]
            self._states = layout.states
            self._gpu = Gpu(
                target,
                kernels=kernels,
                blas=context.blas,
                stream=context.stream,
                places=self._places(layout),
                arrays={key: weights_at + offset for key, offset in weights.offsets.items()},
                workspace=workspace_at,
                candidates=self._candidates(),
            )
            self._upload(weights, weights_at)
        except BaseException:
            self.free()
            raise

    # ------------------------------------------------------------ runs

    def forward(self, slot: Slot, sequences: int) -> None:
        """Fill `slot.outputs` with every output, one behind the other."""
        self._send(slot, sequences)
        self._replay(False, sequences)
        stream = self._context.stream
        values = slot.outputs[: self._output_values(sequences)]
        self._driver.memcpy_dtoh_async(values, self._outputs, stream)
        stream.synchronize()

    def forward_on_card(self, images: int, outputs: int, sequences: int) -> None:
        """As forward, between pointers of this card that other streams may have to do with."""
        source, stream = self._plan.source, self._context.stream
        self._driver.Context.synchronize()
        size = sequences * source.steps * source.shape.size * WORD
        self._driver.memcpy_dtod_async(self._sent + SETTINGS * WORD, images, size, stream)
        self._replay(False, sequences)
        size = self._output_values(sequences) * WORD
        self._driver.memcpy_dtod_async(outputs, self._outputs, size, stream)
        stream.synchronize()

    def detect(self, slot: Slot, sequences: int) -> Array:
        """The records that decoders found, in any order."""
        assert self._room is not None
        self._send(slot, sequences)
        self._replay(True, sequences)
        self._driver.memcpy_dtoh_async(slot.found, self._found, self._context.stream)
        self._context.stream.synchronize()
        count = int(slot.found[0])
        words = slot.found
        if HEADER_WORDS + count * self._room.columns > words.size:
            words = np.empty(HEADER_WORDS + count * self._room.columns, np.uint32)
            self._driver.memcpy_dtoh(words, self._found)
        return self._room.records(words, count).copy()

    def measure(self, slot: Slot, sequences: int, repeats: int) -> list[float]:
        """Milliseconds of each of so many runs, without copies."""
        stream = self._context.stream
        self._send(slot, sequences)
        for _ in range(3):  # eager, recorded, and once more
            self._replay(False, sequences)
        stream.synchronize()
        start, end = self._driver.Event(), self._driver.Event()
        times = []
        for _ in range(repeats):
            start.record(stream)
            self._replay(False, sequences)
            end.record(stream)
            end.synchronize()
            times.append(float(end.time_since(start)))
        return times

    def reset(self) -> None:
        """Set recurrent state to zero."""
        for offset, size in self._states:
            pointer = self._activations + offset
            self._driver.memset_d32_async(pointer, 0, size // WORD, self._context.stream)
        self._context.stream.synchronize()

    def free(self) -> None:
        for each in self._graphs.values():
            each.close()
        self._graphs.clear()
        while self._allocations:
            self._allocations.pop().free()
        self._gpu = None  # its stream and kernels must not outlive the context

    def _send(self, slot: Slot, sequences: int) -> None:
        source = self._plan.source
        values = SETTINGS + sequences * source.steps * source.shape.size
        self._driver.memcpy_htod_async(self._sent, slot.sent[:values], self._context.stream)

    def _replay(self, decodes: bool, sequences: int) -> None:
        """Enqueue a run: the first time op by op, then as a graph recorded the second time.

        The first run also loads what libraries load late, which a recording must not do.
        """
        key = decodes, sequences
        known = self._graphs.get(key)
        if known is not None:
            known.launch()
        elif self._has_graphs and key in self._warm:
            self._record(key).launch()
        else:
            self._warm.add(key)
            self._enqueue(decodes, sequences)

    def _record(self, key: tuple[bool, int]) -> Graph:
        if len(self._graphs) == _MOST_GRAPHS:
            oldest = next(iter(self._graphs))
            self._graphs.pop(oldest).close()
        stream = self._context.stream.handle
        self._graphs[key] = graph.record(stream, partial(self._enqueue, *key))
        return self._graphs[key]

    def _enqueue(self, decodes: bool, sequences: int) -> None:
        gpu, plan = self._gpu, self._plan
        assert gpu is not None, "freed"
        gpu.sequences = sequences
        gpu.blas.allow_tf32(self._is_tf32)
        gpu.bring_in(plan.source, self._sent + SETTINGS * WORD)
        for run, op in self._runs:
            run(gpu, op)
        if decodes:
            gpu.zero(self._found, HEADER_WORDS * WORD)
            for run, head in self._decoders:
                run(gpu, head)
            return
        end = self._outputs
        for tensor in plan.outputs:
            gpu.bring_out(tensor, end)
            end += gpu.rows(tensor) * tensor.shape.size * WORD

    # ------------------------------------------------------------ memory

    def _check_room(self) -> None:
        """Say so before the driver does: its own error knows no numbers."""
        free, _ = self._driver.mem_get_info()
        if self.memory.total > free:
            raise DeviceError(
                f"{self._context.name}: out of memory: this network needs "
                f"{gib(self.memory.total)}, {gib(free)} free. "
                "Try a smaller batch, or --device cpu"
            )

    def _allocate(self, size: int) -> int:
        """The pointer to a block; an empty one is none."""
        if size == 0:
            return 0
        self._allocations.append(self._driver.mem_alloc(size))
        return int(self._allocations[-1])

    def _page_locked(self, values: int, kind: type[np.generic]) -> Array:
        if values == 0:
            return np.empty(0, kind)
        made: Array = self._driver.pagelocked_empty(values, kind)
        self._allocations.append(made.base)
        return made

    def _places(self, layout: Layout) -> dict[Any, Place]:
        return {
            tensor: Place(self._activations + each.offset, each.pitch)
            for tensor, each in layout.slices.items()
        }

    def _candidates(self) -> Candidates | None:
        if self._room is None:
            return None
        return Candidates(
            counter=self._found,
            records=self._found + HEADER_WORDS * WORD,
            columns=self._room.columns,
            per_row=self._room.per_row,
            firsts=self._room.firsts,
            threshold=self._sent,
            hierarchy=self._sent + WORD,
        )

    def _upload(self, weights: Weights, pointer: int) -> None:
        for offset, values in weights.arrays:
            self._driver.memcpy_htod(pointer + offset, values)
        # Such a copy returns before it has arrived, and our stream waits for no other.
        self._driver.Context.synchronize()
        self.reset()

    def _output_values(self, sequences: int) -> int:
        return sum(sequences * each.steps * each.shape.size for each in self._plan.outputs)
