"""The part of a program that is on the device; its memory is made and freed on the device's thread.

A run copies a block in, replays what was enqueued for that many rows, and copies a block out.
Nobody waits here: the next run is enqueued meanwhile, and its images arrive on another stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.backends.base import Memory
from engine.backends.cuda.driver import graphs
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.driver.graphs import Graph
from engine.backends.cuda.driver.pycuda_loader import gib
from engine.backends.cuda.lower.lowered import Decoder, Lowered, Step
from engine.backends.cuda.lower.weights import Weights
from engine.backends.cuda.ops import border
from engine.backends.cuda.ops.gpu import Candidates, Gpu, Place
from engine.backends.cuda.runtime import detection_buffer, overflow
from engine.backends.cuda.runtime.detection_buffer import (
    BEFORE_SCORES,
    FLAG,
    HEADER_WORDS,
    WORD,
    Room,
)
from engine.backends.cuda.runtime.nms_buffer import NEAR, THREADS, Keep
from engine.backends.cuda.runtime.slot import (
    HIERARCHY,
    POINTER,
    SUPPRESSION,
    TABLE,
    Job,
    Key,
    Sizes,
    Slot,
)
from engine.errors import DeviceError
from engine.plan.ops import Op

SLOTS = 4  # one is filled and one is read while a third is on the device and a fourth behind it
_MOST_GRAPHS = 8
_PIECE = 16  # bytes: the granularity of a prefetch
_COPIES = 10  # of an op in a graph that measures it
_LISTERS = 64  # threads of a multiprocessor that list the scores of a picture
_LISTS = ("lengths", "keys", "boxes", "objectness")  # parameters of the kernels
_SPARE = 1.5  # times as many candidates as before come back without being asked for
_LEAST_FOUND = 32  # of a picture
_MOST_FOUND_BYTES = 64 << 20  # page-locked in a slot


class Resident:
    """Memory, kernels and graphs of one program.

    For the device's thread, but for `send_ahead`, `replay` and `expect`.
    """

    def __init__(
        self,
        context: Context,
        lowered: Lowered,
        weights: Weights,
        *,
        room: Room | None,
        has_graphs: bool,
        slots: int = SLOTS,
    ) -> None:
        plan, target, layout = lowered.plan, lowered.target, lowered.layout
        self._context = context
        self._driver = context.driver
        self._calls = context.driver_api
        self._plan = plan
        self._room = room
        self.keep = Keep(0 if room is None else target.rows(plan.source))
        self._has_graphs = has_graphs
        self._gpu: Gpu | None = None
        self._allocations: list[Any] = []
        self._events: list[int] = []
        self.slots: list[Slot] = []
        self._graphs: dict[Key, Graph] = {}
        self._warm: set[Key] = set()
        self._latest: Slot | None = None  # whose run was enqueued last
        self._settings_sent = b""  # what the card has
        self._is_broken_off = False  # a run that was enqueued op by op, before its last one
        self._can_overflow = overflow.is_possible(plan, target)
        self._steps, self._decoders = lowered.steps, lowered.decoders
        self._has_side_stream = any(step.is_on_side_stream for step in lowered.steps)
        kernels = context.kernels(target.precision)
        self._stream, self._copies = context.stream.handle, context.copy_stream.handle
        self._expected = float(
            detection_buffer.COPIED_AT_ONCE
        )  # of a picture: they come back at once
        self._sizes = Sizes(
            images=target.rows(plan.source) * plan.source.shape.size,
            rows=target.rows(plan.source),
            outputs=sum(target.rows(tensor) * tensor.shape.size for tensor in plan.outputs),
            found=0 if room is None else room.words,
            found_copied=0 if room is None else room.copied_words,
            kept_copied=self.keep.near_words,
        )
        # With a state, a run whose candidates were not all fetched cannot be run again.
        slots = 1 if layout.states else slots
        border = self._sizes.outputs + HEADER_WORDS + self._sizes.found + self.keep.words
        border = (1 + slots) * self._sizes.settings_bytes + border * WORD + self.keep.list_bytes
        self._fixed = Memory(weights.size, layout.size + border, layout.workspace)
        self._check_room(self._fixed.total + slots * self._sizes.images * WORD)
        try:
            weights_at = self._allocate(weights.size)
            self._activations = self._allocate(layout.size)
            workspace_at = self._allocate(layout.workspace)
            self._settings = self._allocate(self._sizes.settings_bytes)
            self._returned = self._allocate((HEADER_WORDS + self._sizes.outputs) * WORD)
            self._outputs = self._returned + HEADER_WORDS * WORD
            self._found = self._allocate(self._sizes.found * WORD)
            self._kept = self._allocate(self.keep.words * WORD)
            self._lists = self._allocate(self.keep.list_bytes)
            for _ in range(slots):
                self.slots.append(Slot(self._driver, self._calls, self._sizes))
            self._next_weights = {
                step.op: _next_weights(step, weights, weights_at) for step in lowered.steps
            }
            self._forked, self._joined = self._event(), self._event()
            self._states = layout.states
            self._gpu = Gpu(
                target,
                kernels=kernels,
                blas=context.blas,
                stream=context.stream,
                places={
                    tensor: Place(self._activations + each.offset, each.pitch)
                    for tensor, each in layout.slices.items()
                },
                arrays={key: weights_at + offset for key, offset in weights.offsets.items()},
                workspace=workspace_at,
                candidates=self._candidates(),
                sequences=target.batch,
            )
            self._upload(weights, weights_at)
            self._zero(layout.padded)
        except BaseException:
            self.free()
            raise

    @property
    def memory(self) -> Memory:
        """On the card; it grows when pictures come that are larger than any before."""
        fixed, ways_in = self._fixed, sum(slot.room for slot in self.slots)
        return Memory(fixed.weights, fixed.activations + ways_in, fixed.workspace)

    # ------------------------------------------------------------ runs

    def start(self, slot: Slot, job: Job) -> None:
        """Enqueue a run; once `slot.done` has happened the slot holds what it can of the answer.

        Made again, it takes what the slot's block has: the pictures may be others by now.
        """
        self._make_room_for_finds(slot, job)
        self._send_once(slot, job)
        self._latest = None
        self._replay(job.key)
        self._fetch(slot, job)

    @property
    def is_idle(self) -> bool:
        """Whether the latest run is known to have ended, without asking the driver."""
        return self._latest is None or not self._latest.is_under_way

    def send_ahead(self, slot: Slot, size: int) -> None:
        """On any thread in its turn: let so much of what a slot holds travel before the rest."""
        if self.is_idle:
            self._calls.upload(slot.block, slot.staged_at, size, self._stream)
            slot.sent = size

    def replay(self, slot: Slot, job: Job) -> bool:
        """As start, on any thread in its turn; False where this has to be left to the device's."""
        recorded = self._graphs.get(job.key)
        if recorded is None or self._is_broken_off or self._words_expected(job) > slot.found.size:
            return False
        self._send(slot, job)
        self._latest = None  # until there is somebody to fetch what comes
        recorded.launch()
        self._fetch(slot, job)
        return True

    def expect(self, found: int, pictures: int) -> None:
        """Let more candidates come back at once from now on, or little by little fewer."""
        self._expected = max(self._expected * 15 / 16, _SPARE * found / pictures, _LEAST_FOUND)

    def timed(self, slot: Slot, job: Job) -> list[float]:
        """Milliseconds of the way in, the run and the way out, nothing else being under way."""
        stream = self._context.stream
        stream.synchronize()
        self._make_room_for_finds(slot, job)
        return self._timed(slot, job)

    def timed_behind_others(self, slot: Slot, put: Callable[[], Job]) -> list[float]:
        """As timed, of a run that is enqueued whole before its turn comes.

        Its pictures are put in anew: a card reads slower what a processor has just written.
        """
        stream = self._context.stream
        job = put()
        self.start(slot, job)
        self._replay(job.key)
        job = put()
        self._latest = None  # the way in is timed in its place, not beside the runs before
        times = self._timed(slot, job)
        stream.synchronize()
        return times

    def _timed(self, slot: Slot, job: Job) -> list[float]:
        stream = self._context.stream
        events = [self._driver.Event() for _ in range(4)]
        events[0].record(stream)
        self._send(slot, job)
        events[1].record(stream)
        self._replay(job.key)
        events[2].record(stream)
        self._fetch(slot, job)
        events[3].record(stream)
        events[3].synchronize()
        return [float(end.time_since(start)) for start, end in pairwise(events)]

    def profile(self, slot: Slot, job: Job, repeats: int) -> list[tuple[Step, float]]:
        """Return the milliseconds of each step alone, many times in one graph; resets state."""
        stream, gpu = self._context.stream, self._gpu
        assert gpu is not None, "freed"
        self._send(slot, job)
        self._enqueue(*job.key)
        stream.synchronize()
        gpu = replace(gpu, sequences=job.sequences)
        times = []
        for step in self._steps:
            recorded = graphs.record(stream.handle, partial(self._repeat, gpu, step))
            try:
                recorded.launch()
                taken = [self._launch_time(recorded) / _COPIES for _ in range(repeats)]
            finally:
                stream.synchronize()
                recorded.close()
            times.append((step, float(np.median(taken))))
        self.reset()
        return times

    def largest(self, slot: Slot, job: Job) -> dict[Op, float]:
        """Return the largest magnitude in each op's output in one run; clears flags."""
        stream, gpu = self._context.stream, self._gpu
        assert gpu is not None, "freed"
        gpu = replace(gpu, sequences=job.sequences)
        ops = [op for step in self._steps for op in step.ops]
        values = np.zeros(len(ops), np.float32)
        block = self._driver.mem_alloc(values.nbytes)
        try:
            self._send_once(slot, job)
            out = int(block)
            gpu.zero(out, values.nbytes)
            self._bring_in(gpu, job.has_pictures)
            for step in self._steps:
                self._enqueue_step(gpu, step)
                for op in step.ops:
                    border.find_largest(gpu, op.out, out)
                    out += WORD
            for header in filter(None, (self._found, self._returned)):
                gpu.zero(header + FLAG * WORD, WORD)
            stream.synchronize()
            self._driver.memcpy_dtoh(values, int(block))
        finally:
            block.free()
        return dict(zip(ops, values.tolist(), strict=True))

    def _launch_time(self, recorded: Graph) -> float:
        start, end = self._driver.Event(), self._driver.Event()
        start.record(self._context.stream)
        recorded.launch()
        end.record(self._context.stream)
        end.synchronize()
        return float(end.time_since(start))

    def _fetch(self, slot: Slot, job: Job) -> None:
        if job.suppresses:
            words = self.keep.words_of(job.rows)
            self._calls.download(slot.kept_at, self._kept, words * WORD, self._stream)
        elif job.decodes:
            words = slot.found_words = min(self._words_expected(job), slot.found.size)
            self._calls.download(slot.found_at, self._found, words * WORD, self._stream)
        else:
            size = (HEADER_WORDS + self._output_values(job.sequences)) * WORD
            self._calls.download(slot.returned_at, self._returned, size, self._stream)
        self._calls.record(slot.done, self._stream)
        self._latest, slot.is_under_way = slot, True

    def _words_expected(self, job: Job) -> int:
        if not job.decodes or job.suppresses:
            return 0
        assert self._room is not None
        return self._room.words_of(int(self._expected * job.sequences), job.sequences)

    def _make_room_for_finds(self, slot: Slot, job: Job) -> None:
        words = min(self._words_expected(job), _MOST_FOUND_BYTES // WORD)
        if words > slot.found.size:
            slot.make_room_for_finds(words)

    def all_found(self, slot: Slot, job: Job, count: int) -> Array:
        """The words of every candidate, for a run that found more than its slot can hold."""
        assert self._room is not None
        if self._latest is not slot:  # a later run has overwritten them
            self.start(slot, job)
        self._context.stream.synchronize()
        words = np.empty(HEADER_WORDS + count * self._room.columns, np.uint32)
        self._driver.memcpy_dtoh(words, self._found)
        return words

    def count_found(self, slot: Slot, job: Job) -> int:
        """How many candidates there were, for a run that brought none back."""
        if self._latest is not slot:
            self.start(slot, job)
        self._context.stream.synchronize()
        words = np.empty(1, np.uint32)
        self._driver.memcpy_dtoh(words, self._found)
        return int(words[0])

    def all_kept(self, slot: Slot, job: Job) -> Array:
        """The words of all that suppression left."""
        if self._latest is not slot:
            self.start(slot, job)
        self._context.stream.synchronize()
        words = np.empty(self.keep.words, np.uint32)
        self._driver.memcpy_dtoh(words, self._kept)
        return words

    def forward_on_card(self, images: int, outputs: int, sequences: int) -> None:
        """Between pointers of this card that other streams may have to do with."""
        stream = self._context.stream
        graphs.synchronize(self._driver)
        self._settings_sent = b""
        self._driver.memcpy_htod(self._settings + POINTER, np.array([images], np.uint64))
        graphs.synchronize(self._driver)
        self._replay((False, False, False, sequences))
        size = self._output_values(sequences) * WORD
        self._driver.memcpy_dtod_async(outputs, self._outputs, size, stream)
        stream.synchronize()

    def measure(self, slot: Slot, job: Job, repeats: int) -> list[float]:
        """Milliseconds of each of so many runs, without copies."""
        stream = self._context.stream
        key = job.key
        self._send_once(slot, job)
        for _ in range(3):  # eager, recorded, and once more
            self._replay(key)
        stream.synchronize()
        start, end = self._driver.Event(), self._driver.Event()
        times = []
        for _ in range(repeats):
            start.record(stream)
            self._replay(key)
            end.record(stream)
            end.synchronize()
            times.append(float(end.time_since(start)))
        self._latest = None  # what it found is no more
        return times

    def reset(self) -> None:
        """Set recurrent state to zero."""
        self._zero(self._states)
        self._context.stream.synchronize()

    def free(self) -> None:
        self._context.stream.synchronize()  # a forgotten run may still be under way
        for each in self._graphs.values():
            each.close()
        self._graphs.clear()
        for slot in self.slots:
            slot.free()
        while self._allocations:
            self._allocations.pop().free()
        while self._events:
            self._calls.free_event(self._events.pop())
        self._latest = None
        self._gpu = None  # its stream and kernels must not outlive the context

    def _send_once(self, slot: Slot, job: Job) -> None:
        if slot.is_there:
            self._send_settings(slot, job)
        else:
            self._send(slot, job)

    def _send(self, slot: Slot, job: Job) -> None:
        calls, stream = self._calls, self._stream
        sent, slot.sent = slot.sent, 0
        is_alone = sent or self.is_idle or self._has_ended()
        for start, origin, size in slot.parts or [(sent, slot.staged_at + sent, job.size - sent)]:
            calls.upload(slot.block + start, origin, size, stream if is_alone else self._copies)
        slot.is_there = True
        if is_alone:
            self._send_settings(slot, job)
        else:
            self._send_settings_beside(slot, job)

    def _send_settings(self, slot: Slot, job: Job) -> None:
        calls, stream = self._calls, self._stream
        settings = bytes(slot.settings_of(job))
        if settings != self._settings_sent:
            self._settings_sent = b""  # nobody knows if this is broken off
            calls.upload(self._settings, slot.settings_at, len(settings), stream)
            self._settings_sent = settings

    def _send_settings_beside(self, slot: Slot, job: Job) -> None:
        """With what the slot brings, which the run waits for.

        Sent when their run's turn comes, they would wait behind the pictures of those after it.
        """
        calls, stream, size = self._calls, self._stream, job.settings_bytes
        self._settings_sent = b""
        calls.upload(slot.settings_there, slot.settings_at, size, self._copies)
        calls.record(slot.arrived, self._copies)
        calls.wait_for(stream, slot.arrived)
        calls.move(self._settings, slot.settings_there, size, stream)
        self._settings_sent = bytes(slot.settings_of(job))

    def _has_ended(self) -> bool:
        return self._latest is not None and self._calls.is_done(self._latest.done)

    def _replay(self, key: Key) -> None:
        """Enqueue a run: the first time op by op, then as a graph recorded the second time.

        The first run also loads what libraries load late, which a recording must not do.
        """
        if self._is_broken_off:
            self._forget_scores()
            self._is_broken_off = False
        known = self._graphs.get(key)
        if known is not None:
            known.launch()
        elif self._has_graphs and key in self._warm:
            self._record(key).launch()
        else:
            self._warm.add(key)
            self._is_broken_off = True
            self._enqueue(*key)
            self._is_broken_off = False

    def _record(self, key: Key) -> Graph:
        if len(self._graphs) == _MOST_GRAPHS:
            oldest = next(iter(self._graphs))
            self._graphs.pop(oldest).close()
        stream = self._context.stream.handle
        self._graphs[key] = graphs.record(stream, partial(self._enqueue, *key))
        return self._graphs[key]

    def _enqueue(self, decodes: bool, suppresses: bool, has_pictures: bool, sequences: int) -> None:
        assert self._gpu is not None, "freed"
        gpu = replace(self._gpu, sequences=sequences)
        if self._can_overflow:
            gpu = replace(gpu, flag=(self._found if decodes else self._returned) + FLAG * WORD)
        side = replace(gpu, stream=self._context.side_stream)
        if decodes:
            gpu.zero(self._found, WORD)
        self._bring_in(gpu, has_pictures)
        self._enqueue_steps(gpu, side)
        if decodes:
            for each in self._decoders:
                self._enqueue_step(side if each.is_on_side_stream else gpu, each)
        else:
            self._bring_out(gpu, side)
        if self._has_side_stream:
            self._calls.record(self._joined, side.stream.handle)
            self._calls.wait_for(self._stream, self._joined)
        if suppresses:
            self._suppress(gpu)

    def _enqueue_steps(self, gpu: Gpu, side: Gpu) -> None:
        was_aside = False
        for step in self._steps:
            if step.is_on_side_stream and not was_aside:
                self._calls.record(self._forked, self._stream)
                self._calls.wait_for(side.stream.handle, self._forked)
            self._enqueue_step(side if step.is_on_side_stream else gpu, step)
            was_aside = step.is_on_side_stream

    def _enqueue_step(self, gpu: Gpu, step: Step | Decoder) -> None:
        if isinstance(step, Step):
            gpu = replace(
                gpu, annotations=step.annotations, next_weights=self._next_weights[step.op]
            ).of(step.op)
            gpu.blas.allow_tf32(gpu.target.precision == "tf32")
        else:
            gpu = gpu.of(step.head)
        step.enqueue(gpu)

    def _repeat(self, gpu: Gpu, step: Step) -> None:
        for _ in range(_COPIES):
            self._enqueue_step(gpu, step)

    def _bring_out(self, gpu: Gpu, side: Gpu) -> None:
        on_side_stream = {step.op.out for step in self._steps if step.is_on_side_stream}
        end = self._outputs
        for tensor in self._plan.outputs:
            border.write_output(side if tensor in on_side_stream else gpu, tensor, end)
            end += gpu.rows(tensor) * tensor.shape.size * WORD

    def _suppress(self, gpu: Gpu) -> None:
        room, rows = self._room, gpu.rows(self._plan.source)
        assert room is not None
        lists = dict(zip(_LISTS, self.keep.lists(self._lists), strict=True))
        gpu.launch(
            "list_scores",
            rows * gpu.target.multiprocessors * _LISTERS,
            **lists,
            counter=self._found,
            records=self._found + HEADER_WORDS * WORD,
            pictures=self._settings + TABLE,
            columns=room.columns,
            per_row=room.per_row,
        )
        gpu.launch_grid(
            "suppress",
            (rows, 1, 1),
            THREADS,
            **lists,
            suppression=self._settings + SUPPRESSION,
            flag=self._found + FLAG * WORD,
            kept=self._kept,
            rows=rows,
            room=self.keep.rows,
            numbers=self.keep.counters,
            near=NEAR,
            classes=room.columns - BEFORE_SCORES,
        )

    def _bring_in(self, gpu: Gpu, has_pictures: bool) -> None:
        if has_pictures:
            border.read_pictures(gpu, self._plan.source, self._settings + TABLE)
        else:
            border.read_images(gpu, self._plan.source, self._settings + POINTER)

    # ------------------------------------------------------------ memory

    def _check_room(self, size: int) -> None:
        """Say so before the driver does: its own error knows no numbers."""
        free, _ = self._driver.mem_get_info()
        if size > free:
            raise DeviceError(
                f"{self._context.name}: out of memory: this network needs "
                f"{gib(size)}, {gib(free)} free. "
                "Try a smaller batch, or --device cpu"
            )

    def _allocate(self, size: int) -> int:
        """The pointer to a block; an empty one is none."""
        if size == 0:
            return 0
        self._allocations.append(self._driver.mem_alloc(size))
        return int(self._allocations[-1])

    def _event(self) -> int:
        self._events.append(self._calls.event())
        return self._events[-1]

    def _candidates(self) -> Candidates | None:
        if self._room is None:
            return None
        return Candidates(
            counter=self._found,
            records=self._found + HEADER_WORDS * WORD,
            columns=self._room.columns,
            per_row=self._room.per_row,
            firsts=self._room.firsts,
            threshold=self._settings,
            hierarchy=self._settings + HIERARCHY,
        )

    def _upload(self, weights: Weights, pointer: int) -> None:
        stream = self._context.stream
        for offset, values in weights.arrays:
            self._calls.upload(pointer + offset, values.ctypes.data, values.nbytes, stream.handle)
        stream.synchronize()  # until then the arrays are needed
        # More comes back than was found; the rest must not be what somebody left in this memory.
        if self._sizes.found:
            self._driver.memset_d32_async(self._found, 0, self._sizes.found, stream)
            self._forget_scores()
        self._driver.memset_d32_async(self._returned, 0, HEADER_WORDS, stream)
        self.reset()

    def _forget_scores(self) -> None:
        """Those that were listed and not read, which does this otherwise."""
        if self._sizes.found:
            stream = self._context.stream
            self._driver.memset_d32_async(self._lists, 0, self.keep.counters, stream)

    def _zero(self, stretches: Iterable[tuple[int, int]]) -> None:
        for offset, size in stretches:
            pointer = self._activations + offset
            self._driver.memset_d32_async(pointer, 0, size // WORD, self._context.stream)

    def _output_values(self, sequences: int) -> int:
        return sum(sequences * each.steps * each.shape.size for each in self._plan.outputs)


def _next_weights(step: Step, weights: Weights, pointer: int) -> tuple[int, int]:
    """Return where the weights begin that a step prefetches, and their bytes."""
    following = step.annotations.next_conv
    extent = None if following is None else weights.extent(following, "weight")
    if extent is None:
        return 0, 0
    offset, size = extent
    return pointer + offset, size // _PIECE * _PIECE
