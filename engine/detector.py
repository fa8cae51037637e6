"""Detector: from pictures and arrays to what a network finds in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import islice
from os import PathLike
from types import TracebackType
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from engine.arguments import as_array, check_kind, whole
from engine.arrays import Array
from engine.backends.base import (
    Device,
    Memory,
    PictureProgram,
    PinningProgram,
    Placed,
    Program,
    SuppressingProgram,
)
from engine.concurrency import fork_safety
from engine.concurrency.pipeline import pipelined
from engine.darknet.graph import Graph
from engine.errors import ImageError, InputError, suggest, within_memory
from engine.inputs import Batch, Intake, Prepared, Wanted, check_frames
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import Plan
from engine.settings import Settings
from engine.vision import class_tree
from engine.vision.boxes import Boxes, Kind, Suppression
from engine.vision.classification import Classification
from engine.vision.image import Source
from engine.vision.postprocess import apply_threshold, postprocess_batch
from engine.vision.resize import Fit, Placement
from engine.vision.result import Result

Outcome: TypeAlias = Result | Classification
Rows: TypeAlias = Sequence[Any] | Array  # candidates or probabilities of each picture
Keep: TypeAlias = Literal["always", "if needed", "never"]  # a result's picture

RESIZES = ("cfg", "stretch", "letterbox", "exact")
ON_ERROR = ("raise", "yield", "skip")


class _Run(NamedTuple):
    """A batch, what waits for the rows of its answer, and when its run began."""

    batch: Batch
    settings: tuple[Settings, ...]  # of each picture that was read
    rows: Callable[[], Rows]
    start: float
    has_boxes: bool = False  # `rows` are what is left after suppression


class Detector:
    """A network on a device. Any number of threads may call it; `close` or `with` frees it."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        read_plan: Callable[[], Plan],
        device: Device,
        settings: Settings,
        *,
        labels: tuple[str, ...],
        intake: Intake,
        agnostic_nms: bool,
        precision: str,
        passes: Sequence[str],
    ) -> None:
        self.labels = labels
        self.settings = settings
        self._graph = graph
        self._read_plan = read_plan  # again for layer_outputs(): the weights are not kept twice
        self._device = device
        self._parents = graph.tree_parents
        kind, beta = graph.nms
        self._suppression = Suppression(settings.nms, cast(Kind, kind), beta, agnostic_nms)
        self._precision = precision
        self._passes = passes  # which `plan` went through
        self._program = self._compile(plan)
        self._ahead = self._program if isinstance(self._program, PictureProgram) else None
        is_able = isinstance(self._program, SuppressingProgram) and self.task == "detector"
        self._suppressor = cast(SuppressingProgram, self._program) if is_able else None
        self._intake = replace(intake, scales=self._ahead is None)
        # By as many threads: a state wants them in order.
        self._runs_ahead = 1 if self._ahead is None or self.has_state else self._ahead.runs_ahead
        self._layers: Program | None = None  # keeps every layer; compiled when first asked for
        self._lock = fork_safety.lock()

    def __repr__(self) -> str:
        width, height = self.size
        return f"<Detector: {self.task} {self._graph.file}, {width} x {height}, on {self.device}>"

    @property
    def task(self) -> str:
        """detector, classifier or other."""
        return self._graph.task

    @property
    def device(self) -> str:
        return self._device.name

    @property
    def has_state(self) -> bool:
        """Whether what is found in a picture depends on those before it."""
        return any(tensor.is_state for tensor in self._program.plan.tensors)

    @property
    def runs_at_once(self) -> int:
        """How many threads it takes to keep the device busy."""
        return self._runs_ahead

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the network's input."""
        return self._graph.net.width, self._graph.net.height

    @property
    def suppression(self) -> Suppression:
        """How boxes of one class that overlap are dropped."""
        return self._suppression

    @property
    def leaves(self) -> Array:
        """Whether each class of a classifier has none below it: all, where there is no tree."""
        return class_tree.leaves(self._parents or (-1,) * self._graph.classes)

    @property
    def memory(self) -> Memory:
        """Bytes held on the device, not counting what layer_outputs() needs once it was called."""
        return self._program.memory

    # ------------------------------------------------------------ pictures

    @within_memory("detector")
    def __call__(
        self, source: Source | list[Source] | tuple[Source, ...], *, bgr: bool = False
    ) -> Any:
        """The Result or Classification of a picture; a list of them for a list or tuple.

        A picture is a path, bytes, a file, a Pillow image or an array (height, width, channels),
        in RGB order unless `bgr`.
        """
        self._refuse_without_pictures()
        if isinstance(source, (list, tuple)):
            return list(self._stream(source, "raise", bgr=bgr, keep="if needed"))
        run = self._begin(self._intake.prepare([source], bgr=bgr))
        (outcome,) = self._outcomes(run, keep="if needed")
        if isinstance(outcome, ImageError):
            raise outcome
        return outcome

    @within_memory("detector")
    def prepare(self, source: Source, *, bgr: bool = False, max_pixels: int | None = None) -> Batch:
        """Read and scale one picture for run(), on any thread; raises its ImageError."""
        self._refuse_without_pictures()
        batch = self._intake.prepare([source], bgr=bgr, max_pixels=max_pixels)
        (picture,) = batch.pictures
        if isinstance(picture, ImageError):
            raise picture
        return batch

    @within_memory("detector")
    def run(self, batch: Batch, settings: Sequence[Settings] | None = None) -> list[Outcome]:
        """What is in each picture of what prepare() made, joined; `settings` has those of each."""
        wanted = (self.settings,) * len(batch.placed) if settings is None else tuple(settings)
        if len(wanted) != len(batch.placed):
            raise InputError(f"settings: expected {len(batch.placed)}, got {len(wanted)}")
        if len({each.threshold for each in wanted}) > 1 and not self._can_raise_thresholds:
            rows = (batch.row(number) for number in range(len(wanted)))
            return [self.run(row, [each])[0] for row, each in zip(rows, wanted, strict=True)]
        outcomes = self._outcomes(self._begin(batch, wanted), keep="never")
        return [each for each in outcomes if not isinstance(each, ImageError)]

    @property
    def _can_raise_thresholds(self) -> bool:
        """Whether rows found with one threshold tell which of them a higher one leaves."""
        return all(
            isinstance(head, ops.YoloHead)
            or (isinstance(head, ops.RegionHead) and not head.tree_parents)
            for head in self._program.plan.heads
        )

    def pin(self, frames: Array) -> Array:
        """The same array, from which a GPU takes pictures as they lie, without a copy before.

        It is of bytes, owns its memory and has a picture in each row, as a camera's buffers do;
        what is passed as a picture is a row. A row must not be changed until its result is there.
        This lasts as long as the array and the detector. On a CPU nothing changes.
        """
        check_frames(frames)
        if isinstance(self._program, PinningProgram):
            self._program.pin(frames)
        return frames

    def stream(
        self,
        sources: Iterable[Wanted],
        *,
        bgr: bool = False,
        on_error: str = "raise",
        workers: int = 1,
        keep_pictures: bool = False,
    ) -> Iterator[Any]:
        """Results one by one, in order, for pictures that come one by one.

        `sources` is drawn on a thread and its pictures are prepared on `workers` others, each at
        most one batch ahead. These begin the runs of a GPU, too, and are two more then; for several
        GPUs there is another one for each.
        A picture that cannot be read raises its ImageError; with on_error="yield" the error stands
        in the place of the result, with "skip" nothing does. An ImageError among the sources counts
        as such a picture. Results hold their picture only with `keep_pictures`.
        """
        if isinstance(sources, (str, bytes, PathLike)):
            raise InputError("sources: expected several pictures, got one name. Put it in a list")
        if not hasattr(sources, "__getitem__"):  # which is enough for Python to iterate
            check_kind("sources", sources, Iterable, "several pictures")
        workers = whole("workers", workers)
        if on_error not in ON_ERROR:
            hint = suggest(on_error, ON_ERROR)
            raise InputError(f"on_error: expected {', '.join(ON_ERROR)}, got {on_error!r}.{hint}")
        self._refuse_without_pictures()
        keep: Keep = "always" if keep_pictures else "never"
        return self._stream(sources, on_error, bgr=bgr, keep=keep, workers=workers)

    def _stream(
        self, sources: Iterable[Wanted], on_error: str, *, bgr: bool, keep: Keep, workers: int = 1
    ) -> Iterator[Any]:
        prepare = partial(self._intake.prepare, bgr=bgr)
        chunks = _chunks(sources, self.settings.batch)
        with within_memory("detector"), ExitStack() as stack:
            if self._ahead is not None and not self.has_state:
                # One thread sees a batch through: its Python is in the way of those that copy.
                begun = pipelined(
                    chunks,
                    lambda chunk: self._begin(prepare(chunk)),
                    workers=workers + self._runs_ahead,
                )
                runs: Iterator[_Run] = stack.enter_context(closing(begun))
            else:
                batches = stack.enter_context(closing(pipelined(chunks, prepare, workers=workers)))
                runs = map(self._begin, batches)
                if self._ahead is not None:
                    begun = pipelined(batches, self._begin, workers=self._runs_ahead)
                    runs = stack.enter_context(closing(begun))
            for run in runs:
                for outcome in self._outcomes(run, keep=keep):
                    if not isinstance(outcome, ImageError) or on_error == "yield":
                        yield outcome
                    elif on_error == "raise":
                        raise outcome

    def _begin(self, batch: Batch, settings: tuple[Settings, ...] | None = None) -> _Run:
        """A run that is under way, on a device that works while we do something else."""
        start = time.perf_counter()
        if not batch.placed:
            return _Run(batch, (), tuple, start)
        if settings is None:
            settings, threshold = (self.settings,) * len(batch.placed), self.settings.threshold
        else:
            threshold = min(each.threshold for each in settings)
        if batch.images is None and self._suppresses_there(settings):
            rows = self._started_boxes(batch.placed, settings[0])
            return _Run(batch, settings, rows, start, has_boxes=True)
        if batch.images is None:
            return _Run(batch, settings, self._started(batch.placed, threshold), start)
        return _Run(batch, settings, partial(self._decode, batch.images, threshold), start)

    def _started(self, pictures: Sequence[Placed], threshold: float) -> Callable[[], Rows]:
        assert self._ahead is not None
        if self.task == "classifier":
            outputs = self._ahead.start_forward(pictures)
            return lambda: outputs.result()[0]
        hierarchy = self.settings.hierarchy
        return self._ahead.start_detect(pictures, threshold=threshold, hierarchy=hierarchy).result

    def _suppresses_there(self, settings: tuple[Settings, ...]) -> bool:
        """Whether the device can leave only what all these pictures ask for."""
        if self._suppressor is None or settings.count(settings[0]) < len(settings):
            return False
        # Boxes of other classes are not to suppress those that count.
        return not (self._suppression.across_classes and settings[0].classes is not None)

    def _started_boxes(self, pictures: Sequence[Placed], chosen: Settings) -> Callable[[], Rows]:
        assert self._suppressor is not None
        ticket = self._suppressor.start_boxes(
            *(pictures, self._suppression_of(chosen)),
            threshold=chosen.threshold,
            hierarchy=self.settings.hierarchy,
        )
        if chosen.classes is None and chosen.max_detections is None:
            return ticket.result
        return lambda: [
            each.select(chosen.classes, chosen.max_detections) for each in ticket.result()
        ]

    def _decode(self, images: Array, threshold: float) -> Rows:
        """Candidates, or probabilities, of each row."""
        if self.task == "classifier":
            return self._program.forward(images)[0]
        hierarchy = self.settings.hierarchy
        return self._program.detect(images, threshold=threshold, hierarchy=hierarchy)

    def _outcomes(self, run: _Run, *, keep: Keep) -> Iterator[Outcome | ImageError]:
        """What became of each picture, in order."""
        rows = run.rows()
        pictures = max(len(run.batch.placed), 1)
        timing = {"network": (time.perf_counter() - run.start) * 1e3 / pictures}
        if self.task == "detector" and run.batch.placed:
            start = time.perf_counter()
            rows = rows if run.has_boxes else self._boxes(rows, run)
            timing["suppress"] = (time.perf_counter() - start) * 1e3 / pictures
        remaining = iter(zip(rows, run.settings, strict=True))
        for entry in run.batch.pictures:
            if isinstance(entry, ImageError):
                yield entry
            else:
                found, chosen = next(remaining)
                times = {"prepare": entry.milliseconds, **timing}
                yield self._outcome(entry, found, times, top_k=chosen.top_k, keep=keep)

    def _boxes(self, rows: Rows, run: _Run) -> list[Boxes]:
        """Of each picture; those that want the same are looked at together."""
        placements = [each.placement for each in run.batch.placed]
        if run.settings.count(run.settings[0]) == len(run.settings):
            return self._boxes_by(run.settings[0], rows, placements)
        boxes_of: dict[int, Boxes] = {}
        lowest = min(each.threshold for each in run.settings)
        for chosen in dict.fromkeys(run.settings):
            which = [number for number, each in enumerate(run.settings) if each == chosen]
            left = [rows[number] for number in which]
            if chosen.threshold > lowest:
                left = [apply_threshold(each, chosen.threshold) for each in left]
            found = self._boxes_by(chosen, left, [placements[number] for number in which])
            boxes_of.update(zip(which, found, strict=True))
        return [boxes_of[number] for number in range(len(run.settings))]

    def _boxes_by(
        self, chosen: Settings, rows: Rows, placements: Sequence[Placement]
    ) -> list[Boxes]:
        return postprocess_batch(
            *(list(rows), placements, self._suppression_of(chosen)),
            classes=chosen.classes,
            max_detections=chosen.max_detections,
        )

    def _suppression_of(self, chosen: Settings) -> Suppression:
        if chosen.nms == self._suppression.threshold:
            return self._suppression
        return replace(self._suppression, threshold=chosen.nms)

    def _outcome(
        self, entry: Prepared, found: Any, timing: dict[str, float], *, top_k: int, keep: Keep
    ) -> Outcome:
        """Of the Boxes of a detector, or of the probabilities of a classifier."""
        picture = entry.picture
        if self.task == "classifier":
            return Classification(
                *(picture.size, self._down_the_tree(found.ravel()), self.labels, picture.path),
                timing=timing,
                top_k=top_k,
            )
        return Result.of(
            *(found, picture),
            names=self.labels,
            timing=timing,
            oriented=self._intake.orient,
            keep_picture=keep == "always" or (keep == "if needed" and picture.path is None),
        )

    def _down_the_tree(self, probabilities: Array) -> Array:
        """As darknet names classes: each one's probability below its parents, not among them."""
        if not self._parents:
            return probabilities
        return class_tree.multiply_down(probabilities[None].copy(), self._parents).ravel()

    def _refuse_without_pictures(self) -> None:
        if self.task == "other":
            raise InputError(
                f"{self._graph.file}: finds neither boxes nor classes in pictures. Use forward()"
            )

    # ------------------------------------------------------------ arrays

    @within_memory("detector")
    def forward(self, x: Array) -> tuple[Array, ...]:
        """The network's output, then that of each detection layer, for one batch.

        `x` is float32 (rows, channels, height, width), or (rows, inputs) without an image.
        """
        return self._program.forward(self._rows(x))

    @within_memory("detector")
    def candidates(
        self, x: Array, *, threshold: float | None = None, hierarchy: float | None = None
    ) -> list[Array]:
        """Return the input of vision.postprocess for each row of one batch, as forward().

        `threshold` and `hierarchy` are those of load() unless given.
        """
        usual = self.settings
        chosen = replace(
            usual,
            threshold=usual.threshold if threshold is None else threshold,
            hierarchy=usual.hierarchy if hierarchy is None else hierarchy,
        )
        return list(
            self._program.detect(
                self._rows(x), threshold=chosen.threshold, hierarchy=chosen.hierarchy
            )
        )

    @within_memory("detector")
    def layer_outputs(self, x: Array) -> list[Array]:
        """The output of every layer, in the order of the .cfg, for one batch.

        It runs on memory of its own, so a recurrent network's state there is its own, too.
        """
        with self._lock:
            if self._layers is None:
                whole = self._read_plan().keeping_layers()
                self._layers = self._compile(optimise(whole, self._passes))
        values = dict(
            zip(self._layers.plan.outputs, self._layers.forward(self._rows(x)), strict=True)
        )
        return [values[tensor] for tensor in self._layers.plan.layers]

    def _rows(self, x: Array) -> Array:
        x = as_array("x", x)
        shape, most = self._graph.net.shape, self.settings.batch
        if x.ndim == 2 and x.shape[1] == shape.size:
            x = x.reshape(len(x), *shape.sides)
        if x.ndim != 4 or x.shape[1:] != shape.sides or x.dtype.kind != "f":
            raise InputError(f"x: expected float32 (rows, {shape}), got {x.dtype} {x.shape}")
        if not 1 <= len(x) <= most:
            raise InputError(f"x: expected 1 to {most} rows, got {len(x)}. See load(batch=…)")
        with np.errstate(over="ignore"):  # what no float can hold is infinite
            return x.astype(np.float32, copy=False)

    # ------------------------------------------------------------ life

    def reset(self) -> None:
        """Set the state of a recurrent network back to zero."""
        for program in (self._program, self._layers):
            if program is not None:
                program.reset()

    def close(self) -> None:
        """Free the device; the detector cannot be used any more."""
        self._device.close()

    def __enter__(self) -> Detector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _compile(self, plan: Plan) -> Program:
        return self._device.compile(plan, batch=self.settings.batch, precision=self._precision)


def _chunks(sources: Iterable[Wanted], size: int) -> Iterator[list[Wanted]]:
    remaining = iter(sources)
    while chunk := list(islice(remaining, size)):
        yield chunk


def intake_of(network: Graph, resize: str = "cfg", *, orient: bool = True) -> Intake:
    """How a network takes pictures, `resize` being one of RESIZES."""
    if resize not in RESIZES:
        hint = suggest(resize, RESIZES)
        raise InputError(f"resize: expected {', '.join(RESIZES)}, got {resize!r}.{hint}")
    fit = resize
    if resize in ("cfg", "exact"):
        fit = "letterbox" if network.letter_box else "stretch"
        fit = "crop" if network.task == "classifier" else fit
    return Intake(network.net.shape, cast(Fit, fit), exact=resize == "exact", orient=orient)
