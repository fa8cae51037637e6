"""A program on the device: sends what a run reads, replays its graph, fetches what it returns.

Nothing here waits for a run: the next one is enqueued meanwhile, and its pictures arrive on another
stream. Memory is allocated and freed on the device's thread.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

from engine.arrays import Array
from engine.backends.base import Memory
from engine.backends.cuda.driver import graphs
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.driver.graphs import Graph
from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.backends.cuda.lower.weights import Weights
from engine.backends.cuda.runtime import detection_buffer
from engine.backends.cuda.runtime.detection_buffer import HEADER_WORDS, WORD
from engine.backends.cuda.runtime.device_memory import DeviceMemory
from engine.backends.cuda.runtime.slot import POINTER, Job, Key, Slot
from engine.backends.cuda.runtime.step_runner import StepRunner
from engine.plan.ops import Op

# Staging a run takes a thread about five times as long as the fastest networks run. While each of
# these threads fills a slot, one run is on the device and another waits for it.
SUBMITTERS = 6
SLOTS = SUBMITTERS + 2
_MOST_GRAPHS = 8
_COPIES = 10  # how often a graph repeats the step that it measures
_SPARE = 1.5  # candidates copied in advance, relative to earlier runs
_LEAST_FOUND = 32  # candidates of a picture
_MOST_FOUND_BYTES = 64 << 20  # page-locked in a slot


class DeviceProgram:
    """Memory, graphs and slots of one program.

    All methods run on the device's thread, except `send_ahead`, `replay` and `expect`.
    """

    def __init__(
        self,
        context: Context,
        lowered: Lowered,
        weights: Weights,
        *,
        has_graphs: bool,
        slots: int = SLOTS,
    ) -> None:
        self.slots: list[Slot] = []
        self._context = context
        self._driver = context.driver
        self._api = context.driver_api
        self._stream, self._copy_stream = context.stream.handle, context.copy_stream.handle
        self._outputs = lowered.plan.outputs
        self._states = lowered.layout.states
        self._has_graphs = has_graphs
        self._graphs: dict[Key, Graph] = {}
        self._warm: set[Key] = set()  # runs that were enqueued once, eagerly
        self._latest: Slot | None = None  # the slot of the run that was enqueued last
        self._settings_sent = b""  # what the device has; empty if unknown
        self._is_interrupted = False  # an eager run was not enqueued completely
        self._expected = float(detection_buffer.COPIED_AT_ONCE)  # candidates of a picture
        # With a state, a run cannot be repeated to fetch candidates that were overwritten.
        slots = 1 if self._states else slots
        self.runner: StepRunner | None = None
        self.buffers = DeviceMemory(context, lowered, weights, slots)
        try:
            for _ in range(slots):
                self.slots.append(Slot(self._driver, self._api, self.buffers))
            self.runner = StepRunner(context, lowered, weights, self.buffers)
            self._upload(weights)
            self.buffers.zero_activations(lowered.layout.padded)
        except BaseException:
            self.free()
            raise

    @property
    def memory(self) -> Memory:
        """What the program has on the device; slots grow with the largest pictures."""
        fixed, slots = self.buffers.fixed, sum(slot.room for slot in self.slots)
        return Memory(fixed.weights, fixed.activations + slots, fixed.workspace)

    # ------------------------------------------------------------ runs

    def start(self, slot: Slot, job: Job) -> None:
        """Enqueue a run and copies of its results to the slot, complete after `slot.done`.

        A repeated run reads the slot's block, since the caller's pictures may have changed.
        """
        self._grow_found(slot, job)
        self._send_once(slot, job)
        self._latest = None
        self._replay(job.key)
        self._fetch(slot, job)

    @property
    def is_idle(self) -> bool:
        """Whether the latest run is known to have ended, without asking the driver."""
        return self._latest is None or not self._latest.is_under_way

    def send_ahead(self, slot: Slot, size: int) -> None:
        """Enqueue the upload of the first `size` bytes of a slot; holds the enqueue lock."""
        if self.is_idle:
            self._api.upload(slot.block, slot.staged_at, size, self._stream)
            slot.sent = size

    def replay(self, slot: Slot, job: Job) -> bool:
        """Do the same as `start` under the enqueue lock; False if it needs the device's thread."""
        recorded = self._graphs.get(job.key)
        if recorded is None or self._is_interrupted:
            return False
        if not job.suppresses and self._words_expected(job) > slot.found.size:
            return False
        self._send(slot, job)
        self._latest = None  # until the results are on their way
        recorded.launch()
        self._fetch(slot, job)
        return True

    def expect(self, found: int, pictures: int) -> None:
        """Adapt how many candidates are copied at once to what a run has found."""
        self._expected = max(self._expected * 15 / 16, _SPARE * found / pictures, _LEAST_FOUND)

    def forward_on_card(self, images: int, outputs: int, sequences: int) -> None:
        """Run from and to pointers of this device, which other streams may use."""
        stream = self._context.stream
        graphs.synchronize(self._driver)
        self._settings_sent = b""
        self._driver.memcpy_htod(self.buffers.settings + POINTER, np.array([images], np.uint64))
        graphs.synchronize(self._driver)
        self._replay((False, False, False, sequences))
        size = self._output_values(sequences) * WORD
        self._driver.memcpy_dtod_async(outputs, self.buffers.outputs, size, stream)
        stream.synchronize()

    def largest(self, slot: Slot, job: Job) -> dict[Op, float]:
        """Return the largest magnitude in the output of each op in one run."""
        self._send_once(slot, job)
        return self._running.find_largest(job)

    def reset(self) -> None:
        """Set recurrent state to zero."""
        self.buffers.zero_activations(self._states)
        self._context.stream.synchronize()

    def free(self) -> None:
        self._context.stream.synchronize()  # an abandoned run may still be under way
        for each in self._graphs.values():
            each.close()
        self._graphs.clear()
        for slot in self.slots:
            slot.free()
        self.buffers.free()
        if self.runner is not None:
            self.runner.close()
        self._latest = self.runner = None  # streams and kernels must not outlive the context

    @property
    def _running(self) -> StepRunner:
        assert self.runner is not None, "freed"
        return self.runner

    # ------------------------------------------------------------ results that did not fit

    def read_again(self, slot: Slot, job: Job, pointer: int, count: int) -> Array:
        """Read words of a run from the device, after repeating it if they were overwritten."""
        if self._latest is not slot:
            self.start(slot, job)
        self._context.stream.synchronize()
        words = np.empty(count, np.uint32)
        self._driver.memcpy_dtoh(words, pointer)
        return words

    # ------------------------------------------------------------ timing

    def timed(self, slot: Slot, job: Job) -> list[float]:
        """Return the milliseconds of upload, run and download on an idle device."""
        self._context.stream.synchronize()
        self._grow_found(slot, job)
        return self.timed_on_stream(slot, job)

    def timed_on_stream(self, slot: Slot, job: Job) -> list[float]:
        """Do the same on a device that may still be busy."""
        stream = self._context.stream
        self._latest = None  # the upload is on the main stream, not parallel to earlier runs
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

    def measure(self, slot: Slot, job: Job, repeats: int) -> list[float]:
        """Return the milliseconds of each run, without copies."""
        self._send_once(slot, job)
        for _ in range(3):  # eager, recorded, and a warm-up
            self._replay(job.key)
        self._context.stream.synchronize()
        times = [self._context.time_of(partial(self._replay, job.key)) for _ in range(repeats)]
        self._latest = None  # its results are overwritten
        return times

    def profile(self, slot: Slot, job: Job, repeats: int) -> list[tuple[Step, float]]:
        """Return the milliseconds of each step alone, many times in one graph; resets state."""
        context, runner = self._context, self._running
        self._send(slot, job)
        runner.enqueue(*job.key)
        context.stream.synchronize()
        times = []
        for step in runner.steps:
            enqueue = partial(runner.repeat, step, job.sequences, _COPIES)
            times.append((step, context.recorded_time_of(enqueue, repeats) / _COPIES))
        self.reset()
        return times

    # ------------------------------------------------------------ transfers

    def _send_once(self, slot: Slot, job: Job) -> None:
        if slot.is_there:
            self._send_settings(slot, job)
        else:
            self._send(slot, job)

    def _send(self, slot: Slot, job: Job) -> None:
        """Upload images on the main stream if it is free, else in parallel to earlier runs."""
        sent, slot.sent, slot.is_there = slot.sent, 0, True
        if sent and sent == job.size:
            self._send_settings(slot, job)
            return
        is_free = sent or self.is_idle or self._has_ended()
        stream = self._stream if is_free else self._copy_stream
        for start, origin, size in slot.parts or [(sent, slot.staged_at + sent, job.size - sent)]:
            if size:  # pictures that are on the card already take none
                self._api.upload(slot.block + start, origin, size, stream)
        if is_free:
            self._send_settings(slot, job)
        else:
            self._send_settings_in_parallel(slot, job)

    def _send_settings(self, slot: Slot, job: Job) -> None:
        settings = bytes(slot.settings_of(job))
        if settings != self._settings_sent:
            self._settings_sent = b""  # unknown if this is interrupted
            pointer, size = self.buffers.settings, len(settings)
            self._api.upload(pointer, slot.settings_at, size, self._stream)
            self._settings_sent = settings

    def _send_settings_in_parallel(self, slot: Slot, job: Job) -> None:
        """Upload settings with the images, and copy them on the device when the run's turn comes.

        Uploaded in the run's turn, they would queue after the images of later runs.
        """
        api, size = self._api, job.settings_bytes
        self._settings_sent = b""
        api.upload(slot.settings_there, slot.settings_at, size, self._copy_stream)
        api.record(slot.arrived, self._copy_stream)
        api.wait_for(self._stream, slot.arrived)
        api.move(self.buffers.settings, slot.settings_there, size, self._stream)
        self._settings_sent = bytes(slot.settings_of(job))

    def _has_ended(self) -> bool:
        return self._latest is not None and self._api.is_done(self._latest.done)

    def _fetch(self, slot: Slot, job: Job) -> None:
        """Enqueue a copy of what the run returns; boxes after NMS need none."""
        if job.suppresses:
            self._note_end(slot)
            return
        if job.decodes:
            words = slot.found_words = min(self._words_expected(job), slot.found.size)
            out, pointer = slot.found_at, self.buffers.found
        else:
            out, pointer = slot.returned_at, self.buffers.returned
            words = HEADER_WORDS + self._output_values(job.sequences)
        self._api.download(out, pointer, words * WORD, self._stream)
        self._note_end(slot)

    def _note_end(self, slot: Slot) -> None:
        self._api.record(slot.done, self._stream)
        self._latest, slot.is_under_way = slot, True

    def _words_expected(self, job: Job) -> int:
        if not job.decodes or job.suppresses:
            return 0
        room = self.buffers.room
        assert room is not None
        return room.words_of(int(self._expected * job.rows), job.rows)

    def _grow_found(self, slot: Slot, job: Job) -> None:
        words = min(self._words_expected(job), _MOST_FOUND_BYTES // WORD)
        if words > slot.found.size:
            slot.make_room_for_finds(words)

    def _output_values(self, sequences: int) -> int:
        return sum(sequences * each.steps * each.shape.size for each in self._outputs)

    # ------------------------------------------------------------ graphs

    def _replay(self, key: Key) -> None:
        """Enqueue a run: eagerly the first time, then as a graph that the second time records.

        The first run also loads what libraries load lazily, which a capture forbids.
        """
        if self._is_interrupted:
            self._clear_scores()
            self._is_interrupted = False
        known = self._graphs.get(key)
        if known is not None:
            known.launch()
        elif self._has_graphs and key in self._warm:
            self._record(key).launch()
        else:
            self._is_interrupted = True
            self._running.enqueue(*key)
            self._is_interrupted = False
            self._warm.add(key)

    def _record(self, key: Key) -> Graph:
        if len(self._graphs) == _MOST_GRAPHS:
            oldest = next(iter(self._graphs))
            self._graphs.pop(oldest).close()
        self._graphs[key] = graphs.record(self._stream, partial(self._running.enqueue, *key))
        return self._graphs[key]

    # ------------------------------------------------------------ initial contents

    def _upload(self, weights: Weights) -> None:
        buffers = self.buffers
        for offset, values in weights.arrays:
            pointer = buffers.weights + offset
            self._api.upload(pointer, values.ctypes.data, values.nbytes, self._stream)
        self._context.stream.synchronize()  # the arrays must live until then
        # More is copied than was found; it must not be what another program left in this memory.
        if buffers.found:
            self._context.zero(buffers.found, buffers.found_words * WORD)
            self._clear_scores()
        self._context.zero(buffers.returned, HEADER_WORDS * WORD)
        self.reset()

    def _clear_scores(self) -> None:
        """Clear the lists of scores, which NMS does when it has read them."""
        if self.buffers.lists:
            self._context.zero(self.buffers.lists, self.buffers.keep.counters * WORD)
