"""CudaProgram: a network on a card, for callers on any thread.

Each call stages its input in a slot of pinned memory, enqueues its run, and waits for it. The host
sees float32 (rows, channels, height, width).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Lock, get_ident
from time import perf_counter
from typing import Any, TypeVar
from weakref import finalize

import numpy as np

from engine.arrays import Array
from engine.backends.base import (
    DetectionSettings,
    DevicePixels,
    Memory,
    OpTime,
    Placed,
    PlacedAlike,
    Stages,
    TimedTicket,
    check_heads,
    check_images,
    sequences_of,
)
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.driver.loaded_kernels import load_together
from engine.backends.cuda.lower import launched, lowering
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.lower.weights import Prepare, lay_out_weights, prepare
from engine.backends.cuda.runtime import nms_buffer, overflow, picture_staging
from engine.backends.cuda.runtime.detection_buffer import FLAG, HEADER_WORDS, WORD
from engine.backends.cuda.runtime.device_program import SLOTS, SUBMITTERS, DeviceProgram
from engine.backends.cuda.runtime.picture_staging import Arrangement
from engine.backends.cuda.runtime.slot import Decoding, Job, Recipe, Slot
from engine.backends.cuda.runtime.tickets import Slots, SlotTicket, is_for_host, select
from engine.backends.host_processing import StagedTicket, boxes_of
from engine.errors import DeviceError, EngineError, InputError
from engine.plan.ops import Op
from engine.vision import resize
from engine.vision.boxes import Boxes, Suppression
from engine.vision.postprocess import postprocess_batch
from engine.vision.resize import Placement

Answer = TypeVar("Answer")
_RUNS_IN_A_CROWD = 64  # runs without NMS on the card, after one with too many scores

Put = Callable[[Slot], Job]  # stages the input of a run in a slot


class CudaProgram:
    """A program for many threads, each of which gets the answers for its own images."""

    runs_ahead = 3  # one is filled, one is on the device, and one waits for the device
    submitters = SUBMITTERS
    scales_pictures = True

    def __init__(
        self,
        context: Context,
        lowered: Lowered,
        *,
        has_graphs: bool = True,
        slots: int = SLOTS,
        prepare: Prepare = prepare,
    ) -> None:
        self.plan = plan = lowered.plan
        target = lowered.target
        self.batch = target.batch
        self._context = context
        self._lowered = lowered
        self.is_closed = False
        self._closing = Lock()
        self._closer = 0  # the thread that holds it
        self._collecting = Lock()  # held by the thread that takes all slots
        self.is_settled = Event()  # unless faster algorithms are being looked for
        self.is_settled.set()
        self._sides = plan.source.shape.sides
        self._crowded = 0  # remaining runs without NMS on the card
        context.post(partial(_load_kernels, context, lowered))  # meanwhile
        weights = lay_out_weights(lowered, prepare)
        self._make = partial(DeviceProgram, context, slots=slots, has_graphs=has_graphs)
        self._device = context.run(partial(self._make, lowered, weights), lambda made: made.free())
        room = self._device.buffers.room
        self._is_vast = room is not None and room.scores > nms_buffer.MOST_LISTED
        self._slots = Slots(self._device.slots)
        self._can_overflow = overflow.is_possible(plan, target)
        # A run is examined by repeating it, which would change a recurrent state.
        self._is_watched = self._can_overflow and not any(each.is_state for each in plan.tensors)
        self._copier = picture_staging.Copier()
        # A finalizer may run on any thread at any time, so it must not wait.
        self._forgotten = finalize(self, context.post, self._device.free)

    @property
    def precision(self) -> str:
        """The precision it computes in: float32 where anything less would change too much."""
        target = self._lowered.target
        return "int8" if target.scales else target.precision

    @property
    def memory(self) -> Memory:
        return self._device.memory

    def forward(self, images: Array) -> tuple[Array, ...]:
        return self._run(self._images(images), self._outputs)

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        decoding = self._decoding(threshold, hierarchy)
        return self._run(self._images(images, decoding), self._candidates)

    def start_forward(self, pictures: Sequence[Placed]) -> SlotTicket[tuple[Array, ...]]:
        """Start a run; pictures that are not uint8, or too many bytes, are scaled on the CPU."""
        return self._start(self._pictures(pictures), self._outputs)

    def start_detect(
        self, pictures: Sequence[Placed], *, threshold: float, hierarchy: float = 0.5
    ) -> SlotTicket[list[Array]]:
        """Start a run and return a ticket for the candidates of each picture."""
        decoding = self._decoding(threshold, hierarchy)
        return self._start(self._pictures(pictures, decoding), self._candidates)

    def start_boxes(
        self,
        pictures: Sequence[Placed],
        suppression: Suppression,
        *,
        threshold: float,
        hierarchy: float = 0.5,
    ) -> SlotTicket[list[Boxes]]:
        """Start to compute boxes; after a run with too many scores, NMS runs on the host."""
        is_crowded, self._crowded = self._crowded > 0, max(self._crowded - 1, 0)
        how = b"" if is_crowded or self._is_vast else nms_buffer.how(suppression)
        put = self._pictures(pictures, self._decoding(threshold, hierarchy, how))

        def fetch(slot: Slot, job: Job) -> list[Boxes]:
            found = self._survivors(slot, job) if job.suppresses else None
            if found is None:
                rows = self._candidates(slot, job)
                placements = [each.placement for each in pictures]
                found = postprocess_batch(rows, placements, suppression)
            return found

        return self._start(put, fetch)

    def submit(
        self, pictures: Sequence[Placed], settings: Sequence[DetectionSettings]
    ) -> TimedTicket[list[Boxes]]:
        start, first = perf_counter(), settings[0]
        hierarchy = first.hierarchy
        if settings.count(first) < len(settings) or is_for_host(first):
            threshold = min(each.threshold for each in settings)
            rows = self.start_detect(pictures, threshold=threshold, hierarchy=hierarchy)
            finish = partial(boxes_of, pictures, settings)
            return StagedTicket(
                ("network", lambda _: rows.result()), ("suppress", finish), start=start
            )
        boxes = self.start_boxes(
            pictures, first.suppression, threshold=first.threshold, hierarchy=hierarchy
        )
        chosen = partial(select, first)
        return StagedTicket(
            ("network", lambda _: boxes.result()), ("suppress", chosen), start=start
        )

    def submit_forward(self, pictures: Sequence[Placed]) -> TimedTicket[tuple[Array, ...]]:
        start, ticket = perf_counter(), self.start_forward(pictures)
        return StagedTicket(("network", lambda _: ticket.result()), start=start)

    def recipe_of(
        self, pixels: Array, placement: Placement, settings: DetectionSettings, *, exact: bool
    ) -> Recipe | None:
        """Return what runs of such arrays have in common, or None if submit() must run them."""
        is_small = pixels.size <= picture_staging.MOST_BYTES
        if not is_small or self._is_vast or self.plan.steps > 1 or is_for_host(settings):
            return None
        how = nms_buffer.how(settings.suppression)
        decoding = self._decoding(settings.threshold, settings.hierarchy, how)
        return Recipe(placement, exact, decoding)

    def boxes_of(
        self, pixels: Array, recipe: Recipe, meanwhile: Callable[[], object]
    ) -> Boxes | None:
        """Return the boxes of one array, or None if submit() must find them.

        Calls in a loop differ only in their pixels, so nothing else is checked.
        """
        if self._crowded:
            return None
        slot = self._taken()
        try:
            job = self._staged(slot, pixels, recipe)
            self._enqueue(slot, job)
            meanwhile()
            found = self._survivors(slot, job)
        finally:
            self._slots.give(slot)
        return None if found is None else found[0]

    def pin(self, frames: Array) -> None:
        """Page-lock an array; a picture in it must not change until its run is done."""
        self.check_usable()
        self._context.run(partial(self._context.pinned_memory.pin, frames))

    def know_pinned(self, frames: Array) -> None:
        """Note that another device, or a larger array, has page-locked the array's memory."""
        self._context.pinned_memory.remember(frames)

    def forward_on_card(self, images: int, outputs: int, *, rows: int) -> None:
        """Run forward() from one pointer of this card to another; outputs are contiguous."""
        self.check_usable()
        sequences = rows // self.plan.steps
        with self._slot():  # the algorithms do not change meanwhile
            self._context.run(partial(self._device.forward_on_card, images, outputs, sequences))

    def measure(
        self,
        images: Array | Sequence[Placed],
        *,
        repeats: int = 20,
        threshold: float | None = None,
    ) -> list[float]:
        """Return the device time of each of `repeats` runs in milliseconds, without copies.

        With a threshold a run ends with boxes, otherwise with the network's outputs.
        """
        with self.repeating(images, threshold=threshold) as times:
            return times(repeats)

    @contextmanager
    def repeating(
        self, images: Array | Sequence[Placed], *, threshold: float | None = None
    ) -> Iterator[Callable[[int], list[float]]]:
        """Upload images once and yield a function that times a number of runs."""
        put = self._any(images, threshold)
        with self._slot() as slot:
            job = put(slot)
            yield lambda runs: self._context.run(partial(self._device.measure, slot, job, runs))

    def stages(
        self, images: Array | Sequence[Placed], *, threshold: float | None = None
    ) -> tuple[Stages, Sequence[Any]]:
        """Time a run; staging counts as upload, sorting candidates as download."""
        put = self._any(images, threshold)
        fetch: Callable[..., Sequence[Any]]
        fetch = self._outputs if threshold is None else self._candidates
        with self._slot() as slot:
            start = perf_counter()
            job = put(slot)
            staging = (perf_counter() - start) * 1e3
            upload, forward, download = self._context.run(partial(self._device.timed, slot, job))
            start = perf_counter()
            answer = fetch(slot, job)
            fetching = (perf_counter() - start) * 1e3
        return Stages(staging + upload, forward, download + fetching), answer

    def profile(self, images: Array, *, repeats: int = 10) -> list[OpTime]:
        put = self._images(images)
        with self._slot() as slot:
            times = self._context.run(partial(self._device.profile, slot, put(slot), repeats))
        found = []
        for step, taken in times:
            found.append(OpTime(step.op, taken, str(step.choice or "")))
            # A Multiply that a gate computes takes no time of its own.
            found += [OpTime(op, 0.0, "") for op in step.ops[1:]]
        return found

    def check_range(self) -> None:
        """Raise if a synthetic picture makes activations beyond the range of float16."""
        if self._can_overflow:
            with self._slot() as slot:
                job = self._images(overflow.picture(self.plan))(slot)
                self._context.run(partial(self._examine, slot, job))
            self.reset()

    def reset(self) -> None:
        self.check_usable()
        self._context.run(self._device.reset)

    def settle(self) -> None:
        """Wait until faster algorithms are found, if they are being looked for."""
        self._context.check_process()
        self.is_settled.wait()

    def adopt(self, lowered: Lowered) -> None:
        """Run by other algorithms from the next run on; a recurrent state is lost."""
        self._context.post(partial(_load_kernels, self._context, lowered))
        weights = lay_out_weights(lowered)
        device = self._context.run(partial(self._make, lowered, weights), lambda made: made.free())
        with self._all_slots() as taken:
            if not self.is_closed:
                device, self._device = self._device, device
                self._lowered, self.plan = lowered, lowered.plan
                taken[:] = self._device.slots
                self._forgotten.detach()
                self._forgotten = finalize(self, self._context.post, self._device.free)
        self._context.run(device.free)

    def close(self) -> None:
        """Free everything, once the calls under way have their answers."""
        if not self._forgotten.alive or not self._context.is_own_process:
            return
        if self._closer == get_ident():  # in a signal handler or a finalizer
            return
        with self._closing:  # after another thread, the device may be closed
            if not self._forgotten.alive:
                return
            self._closer = get_ident()
            try:  # an interrupted close can be repeated
                self.is_closed = True
                with self._all_slots():  # callers that wait for one must see that it is closed
                    self._copier.close()
                    self._free()
            finally:
                self._closer = 0

    def _free(self) -> None:
        try:
            self._context.run(self._device.free)
        except DeviceError:  # closing the context frees what a lost card has
            self._forgotten.detach()
            raise
        self._forgotten.detach()

    @contextmanager
    def _all_slots(self) -> Iterator[list[Slot]]:
        """Keep runs from starting inside the block; give back what it leaves in the list."""
        taken: list[Slot] = []
        with self._collecting:
            try:
                while len(taken) < len(self._device.slots):
                    taken.append(self._slots.take())
                yield taken
            finally:
                for slot in taken:
                    self._slots.give(slot)

    # ------------------------------------------------------------ input

    def _any(self, images: Array | Sequence[Placed], threshold: float | None) -> Put:
        decoding = None if threshold is None else self._decoding(threshold, 0.5)
        if isinstance(images, np.ndarray):
            return self._images(images, decoding)
        return self._pictures(images, decoding)

    def _images(self, images: Array, decoding: Decoding | None = None) -> Put:
        sequences = check_images(self.plan, images, self.batch)
        job = self._job(sequences, images.size * WORD, decoding)
        return partial(self._put, job, decoding, partial(self._stage_images, images))

    def _pictures(self, placed: Sequence[Placed], decoding: Decoding | None = None) -> Put:
        channels, height, width = self._sides
        network = width, height
        for pixels, placement, *_ in placed[:1] if isinstance(placed, PlacedAlike) else placed:
            if placement.network != network or pixels.shape[2] != channels:
                (got_width, got_height), got = placement.network, pixels.shape[2]
                raise InputError(
                    f"pictures: expected {channels} channels for {width} x {height}, "
                    f"got {got} for {got_width} x {got_height}"
                )
        sequences = sequences_of(self.plan, len(placed), self.batch)
        found = picture_staging.arrange(placed)
        if found is None:
            size = len(placed) * self.plan.source.shape.size * WORD
            job = self._job(sequences, size, decoding)
            return partial(self._put, job, decoding, partial(self._stage_scaled, placed))
        job = self._job(sequences, found.size, decoding, has_pictures=True)
        return partial(self._put, job, decoding, partial(self._stage_pictures, placed, found))

    def _staged(self, slot: Slot, pixels: Array, recipe: Recipe) -> Job:
        """Stage an array by a recipe; a slot that has used the recipe needs only the pixels."""
        if slot.recipe is not recipe:
            placed = Placed(pixels, recipe.placement, recipe.exact)
            slot.job = self._pictures([placed], recipe.decoding)(slot)
            slot.recipe = recipe
            return slot.job
        slot.is_there = False
        if not self._device.is_idle:  # it arrives during another run
            slot.read_block()
            self._stage_pixels((pixels,), (0,), slot)
        elif (pointer := self._context.pinned_memory.address_of(pixels)) is not None:
            slot.read_in_place(pixels, pointer)
        else:
            self._copier.copy((pixels,), (0,), slot.staged)
            slot.read_in_place(pixels, slot.staged_at)
        return slot.job

    def _put(
        self, job: Job, decoding: Decoding | None, stage: Callable[[Slot], None], slot: Slot
    ) -> Job:
        slot.clear()
        if job.size > slot.room:
            self._context.run(partial(slot.make_room, job.size))
        if not job.decodes and slot.outputs is None:
            self._context.run(slot.make_room_for_outputs)
        stage(slot)
        if decoding is not None:
            slot.put_decoding(decoding)
        return job

    def _stage_images(self, images: Array, slot: Slot) -> None:
        starts = range(0, images.size, images[0].size)
        self._copier.copy(list(images), starts, slot.images(), partial(self._send_ahead, slot))

    def _stage_scaled(self, placed: Sequence[Placed], slot: Slot) -> None:
        values = slot.images()[: len(placed) * self.plan.source.shape.size]
        for each, row in zip(placed, values.reshape(-1, *self._sides), strict=True):
            pixels = each.pixels
            if isinstance(pixels, DevicePixels):
                pixels = pixels.picture.pixels
            resize.scale_into(pixels, each.placement, row, exact=each.exact)

    def _stage_pictures(
        self, placed: Sequence[Placed], arrangement: Arrangement, slot: Slot
    ) -> None:
        slot.put_table(placed, arrangement)
        arrays = arrangement.arrays
        if arrays:
            self._stage_pixels(arrays, arrangement.offsets, slot)
        is_there = (isinstance(each.pixels, DevicePixels) for each in placed)
        if len(arrays) < len(placed) and any(is_there):
            slot.held = [each.pixels for each in placed]

    def _stage_pixels(self, arrays: Sequence[Array], offsets: Sequence[int], slot: Slot) -> None:
        if self._context.pinned_memory.contains(arrays):
            slot.lend(arrays, offsets)
        else:
            slot.parts = []
            self._copier.copy(arrays, offsets, slot.staged, partial(self._send_ahead, slot))

    def _send_ahead(self, slot: Slot, size: int) -> None:
        if self._device.is_idle:
            with self._context.enqueue_lock:
                self._device.send_ahead(slot, size)

    def _decoding(self, threshold: float, hierarchy: float, how: bytes = b"") -> Decoding:
        check_heads(self.plan)
        return Decoding.of(threshold, hierarchy, how)

    def _job(
        self, sequences: int, size: int, decoding: Decoding | None, *, has_pictures: bool = False
    ) -> Job:
        rows = sequences * self.plan.steps
        suppresses = has_pictures and decoding is not None and bool(decoding.how)
        return Job(sequences, rows, size, has_pictures, decoding is not None, suppresses)

    def _run(self, put: Put, fetch: Callable[[Slot, Job], Answer]) -> Answer:
        with self._slot() as slot:
            return fetch(slot, self._enqueue(slot, put(slot)))

    def _start(self, put: Put, fetch: Callable[[Slot, Job], Answer]) -> SlotTicket[Answer]:
        slot = self._taken()
        try:
            job = self._enqueue(slot, put(slot))
        except BaseException:
            self._slots.give(slot)
            raise
        return self._slots.hold(slot, partial(fetch, slot, job))

    def _enqueue(self, slot: Slot, job: Job) -> Job:
        with self._context.enqueue_lock:
            is_under_way = self._device.replay(slot, job)
        if not is_under_way:
            self._context.run(partial(self._device.start, slot, job))
        return job

    @contextmanager
    def _slot(self) -> Iterator[Slot]:
        slot = self._taken()
        try:
            yield slot
        finally:
            self._slots.give(slot)

    def _taken(self) -> Slot:
        self._context.check_process()  # a forked child would wait here forever
        if self._collecting.locked():  # busy callers would never leave all slots to another thread
            with self._collecting:
                pass
        slot = self._slots.take()
        if self.is_closed:
            self._slots.give(slot)
            self.check_usable()
        slot.sent = 0  # left by a call that failed while staging
        return slot

    # ------------------------------------------------------------ results

    def _outputs(self, slot: Slot, job: Job) -> tuple[Array, ...]:
        self._wait(slot)
        assert slot.outputs is not None
        self._check(slot, job, slot.header)
        results = []
        end, scales = 0, self._lowered.target.scales
        for tensor in self.plan.outputs:
            start, end = end, end + job.sequences * tensor.steps * tensor.shape.size
            values = slot.outputs[start:end].reshape(-1, *tensor.shape.sides).copy()
            results.append(values * np.float32(scales[tensor]) if tensor in scales else values)
        return tuple(results)

    def _candidates(self, slot: Slot, job: Job) -> list[Array]:
        buffers = self._device.buffers
        room, read = buffers.room, partial(self._read_again, slot, job, buffers.found)
        assert room is not None
        self._wait(slot)
        words, copied = slot.found, slot.found_words
        if job.suppresses:
            words, copied = read(1), 1
        else:
            self._check(slot, job, words)
        count = int(words[0])
        if not job.suppresses:
            self._device.expect(count, job.rows)
        needed = HEADER_WORDS + count * room.columns
        if needed > copied:
            words = read(needed)
        return room.sorted_rows(room.records(words, count), job.rows)

    def _read_again(self, slot: Slot, job: Job, pointer: int, words: int) -> Array:
        return self._context.run(partial(self._device.read_again, slot, job, pointer, words))

    def _survivors(self, slot: Slot, job: Job) -> list[Boxes] | None:
        """Return the boxes, or None if more scores competed than the card can sort."""
        self._wait(slot)
        words, keep = slot.kept, self._device.buffers.keep
        self._check(slot, job, words)
        counts = keep.counts(words, job.rows)
        most = max(counts)
        if most == nms_buffer.CROWDED:
            self._crowded = _RUNS_IN_A_CROWD
            return None
        if most > nms_buffer.NEAR:
            words = self._read_again(slot, job, self._device.buffers.kept, keep.words)
        return keep.boxes(words, counts)

    def _check(self, slot: Slot, job: Job, header: Array) -> None:
        if self._is_watched and header[FLAG]:
            self._context.run(partial(self._examine, slot, job))

    def _examine(self, slot: Slot, job: Job) -> None:
        """Raise if this run makes activations beyond the range of float16."""
        op = overflow.suspect(self._lowered, self._device.largest(slot, job))
        if op is None:
            return
        values: dict[Op, float] = {}
        with suppress(DeviceError):  # no memory for both
            floats = lowering.in_floats(self._lowered)
            weights = lay_out_weights(floats)
            twin = DeviceProgram(self._context, floats, weights, has_graphs=False)
            try:
                values = twin.largest(slot, job)
            finally:
                twin.free()
        overflow.refuse(self.plan, op, values)

    def _wait(self, slot: Slot) -> None:
        self._context.check_process()
        self._context.wait(slot.done)
        slot.is_under_way = False

    def check_usable(self) -> None:
        """Raise if the program is closed or belongs to the parent of a forked process."""
        self._context.check_process()
        if self.is_closed:
            raise EngineError("program: closed. Load the network again")


def _load_kernels(context: Context, lowered: Lowered) -> None:
    """Compile and load on the device's thread what the first run would load one by one.

    Errors are not reported here: the step that needs a kernel will fail to load it again.
    """
    load_together(
        (context.kernels(precision), unit)
        for precision, units in launched.units_of(lowered).items()
        for unit in units
    )
