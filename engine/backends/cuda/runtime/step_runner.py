"""Enqueue the steps of a program: eagerly, or while they are recorded as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from engine.backends.cuda.conv.algorithm import KeepingConv2d
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.backends.cuda.lower.weights import Weights
from engine.backends.cuda.ops import border
from engine.backends.cuda.ops.gpu import Gpu, Place
from engine.backends.cuda.runtime import overflow
from engine.backends.cuda.runtime.detection_buffer import BEFORE_SCORES, FLAG, WORD
from engine.backends.cuda.runtime.device_memory import DeviceMemory
from engine.backends.cuda.runtime.nms_buffer import NEAR, THREADS
from engine.backends.cuda.runtime.slot import HIERARCHY, POINTER, SUPPRESSION, TABLE, Job
from engine.plan.ops import Conv2d, Head, Op

_PREFETCHED = 16  # bytes: the granularity of a prefetch
_LISTERS = 64  # threads of a multiprocessor that list the scores of a picture


class StepRunner:
    """The steps of one program, bound to its memory, kernels and streams."""

    def __init__(
        self, context: Context, lowered: Lowered, weights: Weights, memory: DeviceMemory
    ) -> None:
        self.steps = lowered.steps
        self._decoders = lowered.decoders
        self._context = context
        self._plan = lowered.plan
        self._memory = memory
        self._can_overflow = overflow.is_possible(lowered.plan, lowered.target)
        self._on_side_stream = {step.op.out for step in self.steps if step.is_on_side_stream}
        self._next_weights = next_weights(self.steps, weights, memory.weights)
        self._returned = lowered.layout.returned
        gpu = lowered.on(
            context,
            activations=memory.activations,
            workspace=memory.workspace,
            arrays={key: memory.weights + offset for key, offset in weights.offsets.items()},
            decoding=_decoding(memory),
        )
        returned = {
            tensor: Place(memory.outputs, tensor.shape.channels) for tensor in self._returned
        }
        self.gpu = replace(gpu, places={**gpu.places, **returned})
        calls = context.driver_api
        self._forked, self._joined = calls.event(), calls.event()

    def close(self) -> None:
        self._context.driver_api.free_event(self._forked)
        self._context.driver_api.free_event(self._joined)

    def enqueue(self, decodes: bool, suppresses: bool, has_pictures: bool, sequences: int) -> None:
        """Enqueue a whole run."""
        calls, memory = self._context.driver_api, self._memory
        gpu = replace(self.gpu, sequences=sequences)
        if self._can_overflow:
            header = memory.found if decodes else memory.returned
            gpu = replace(gpu, flag=header + FLAG * WORD)
        side = replace(gpu, stream=self._context.side_stream)
        if decodes:
            self._context.zero(memory.found, WORD)
        self._read_input(gpu, has_pictures)
        self._enqueue_steps(gpu, side)
        if decodes:
            for each in self._decoders:
                each.enqueue((side if each.is_on_side_stream else gpu).of(each.op))
        else:
            self._write_outputs(gpu, side)
        if self._on_side_stream:
            calls.record(self._joined, side.stream.handle)
            calls.wait_for(gpu.stream.handle, self._joined)
        if suppresses:
            self._suppress(gpu)

    def enqueue_step(self, gpu: Gpu, step: Step) -> None:
        gpu = replace(
            gpu, annotations=step.annotations, next_weights=self._next_weights[step.op]
        ).of(step.op)
        gpu.blas.allow_tf32(gpu.target.precision == "tf32")
        step.enqueue(gpu)

    def repeat(self, step: Step, sequences: int, count: int) -> None:
        """Enqueue a step many times, to measure it."""
        gpu = replace(self.gpu, sequences=sequences)
        for _ in range(count):
            self.enqueue_step(gpu, step)

    def find_largest(self, job: Job) -> dict[Op, float]:
        """Return the largest magnitude in the output of each op in one run; clear the flags."""
        driver, memory = self._context.driver, self._memory
        gpu = replace(self.gpu, sequences=job.sequences)
        ops = [op for step in self.steps for op in step.ops]
        values = np.zeros(len(ops), np.float32)
        block = driver.mem_alloc(values.nbytes)
        try:
            out = int(block)
            self._context.zero(out, values.nbytes)
            self._read_input(gpu, job.has_pictures)
            for step in self.steps:
                self.enqueue_step(gpu, step)
                for op in step.ops:
                    kept = (op.kept,) if isinstance(op, KeepingConv2d) else ()
                    for tensor in (op.out, *kept):
                        border.find_largest(gpu, tensor, out)
                    out += WORD
            for header in filter(None, (memory.found, memory.returned)):
                self._context.zero(header + FLAG * WORD, WORD)
            self._context.stream.synchronize()
            driver.memcpy_dtoh(values, int(block))
        finally:
            block.free()
        return dict(zip(ops, values.tolist(), strict=True))

    def _enqueue_steps(self, gpu: Gpu, side: Gpu) -> None:
        """Run steps in order; the side stream waits for the main stream where it is entered."""
        calls, was_aside = self._context.driver_api, False
        for step in self.steps:
            if step.is_on_side_stream and not was_aside:
                calls.record(self._forked, gpu.stream.handle)
                calls.wait_for(side.stream.handle, self._forked)
            self.enqueue_step(side if step.is_on_side_stream else gpu, step)
            was_aside = step.is_on_side_stream

    def _read_input(self, gpu: Gpu, has_pictures: bool) -> None:
        source, settings = self._plan.source, self._memory.settings
        if has_pictures:
            border.read_pictures(gpu, source, settings + TABLE)
        else:
            border.read_images(gpu, source, settings + POINTER)

    def _write_outputs(self, gpu: Gpu, side: Gpu) -> None:
        end = self._memory.outputs
        for tensor in self._plan.outputs:
            if tensor not in self._returned:
                border.write_output(side if tensor in self._on_side_stream else gpu, tensor, end)
            end += gpu.rows(tensor) * tensor.shape.size * WORD

    def _suppress(self, gpu: Gpu) -> None:
        """Enqueue NMS: list the scores of each picture, then suppress boxes in one block each."""
        memory, rows = self._memory, gpu.rows(self._plan.source)
        room, keep = memory.room, memory.keep
        assert room is not None
        gpu.launch(
            "list_scores",
            rows * gpu.target.multiprocessors * _LISTERS,
            **keep.lists(memory.lists),
            counter=memory.found,
            records=memory.records,
            pictures=memory.settings + TABLE,
            columns=room.columns,
            per_row=room.per_row,
        )
        gpu.launch_grid(
            "suppress",
            (rows, 1, 1),
            THREADS,
            **keep.lists(memory.lists),
            suppression=memory.settings + SUPPRESSION,
            flag=memory.found + FLAG * WORD,
            kept=memory.kept,
            rows=rows,
            room=keep.rows,
            numbers=keep.counters,
            near=NEAR,
            classes=room.columns - BEFORE_SCORES,
        )


def _decoding(memory: DeviceMemory) -> Mapping[Op | Head, Mapping[str, int]]:
    """Return the arguments of the decoder of each head, by the names of its parameters."""
    room = memory.room
    if room is None:
        return {}
    known = {
        "counter": memory.found,
        "records": memory.records,
        "columns": room.columns,
        "per_row": room.per_row,
        "threshold": memory.settings,
        "hierarchy": memory.settings + HIERARCHY,
    }
    return {head: {**known, "first": first} for head, first in room.firsts.items()}


def next_weights(
    steps: Sequence[Step], weights: Weights, pointer: int
) -> dict[Op, tuple[int, int]]:
    """Return where the weights of the next convolution begin, and their bytes, for every step."""
    found, following = {}, (0, 0)
    for step in reversed(steps):
        found[step.op] = following
        if isinstance(step.op, Conv2d):
            offset = weights.offsets.get((step.op, "weight"))
            size = 0 if offset is None else weights.sizes[offset] // _PREFETCHED * _PREFETCHED
            following = (0, 0) if offset is None else (pointer + offset, size)
    return found
