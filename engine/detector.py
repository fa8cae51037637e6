"""Detector: from pictures and arrays to what a network finds in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path, PurePath
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, overload

import numpy as np

from engine.arguments import as_array, check_kind, whole
from engine.arrays import Array, Floats
from engine.backends.base import (
    DetectionSettings,
    Device,
    Memory,
    Placed,
    Program,
    TimedTicket,
    thresholds_may_differ,
)
from engine.concurrency import fork_safety
from engine.concurrency.pipeline import pipelined
from engine.darknet.graph import Graph
from engine.errors import ImageError, InputError, suggest, within_memory
from engine.files.naming import shown
from engine.filled_runs import Pending, filled_runs
from engine.inputs import Batch, Intake, Prepared, Wanted, check_frames
from engine.passes import optimise
from engine.plan.build import Plan
from engine.settings import Settings, Tiles
from engine.sources.media import MediaKind, media_of
from engine.sources.pictures import is_endless, is_file, is_single, name_of, pictures_of
from engine.sources.reader import FrameSelection
from engine.sources.remote_picture import RemotePicture
from engine.vision import class_tree
from engine.vision.boxes import Boxes, Kind, Suppression
from engine.vision.classes import chosen_classes
from engine.vision.classification import Classification
from engine.vision.code import Code
from engine.vision.image import Decoder, Picture, Source
from engine.vision.result import Result
from engine.vision.tiles import merge

if TYPE_CHECKING:
    from engine.codes.reader import CodeReader
    from engine.export.onnx import Model
    from engine.vision.decode_pool import DecodePool

Outcome: TypeAlias = Result | Classification
Frames = TypeVar("Frames", bound=Array)
OneSource = TypeVar("OneSource", bound="Source | int")
Keep: TypeAlias = Literal["always", "if needed", "never"]  # the picture, in its result

ON_ERROR = ("raise", "yield", "skip")


class _Run(NamedTuple):
    """A submitted batch."""

    batch: Batch
    settings: tuple[Settings, ...]  # one for each picture that was read
    ticket: TimedTicket[Sequence[Any]] | None  # None if no picture was read


class Detector:
    """A network on a device. Any number of threads may call it; `close` or `with` frees it.

    Examples:
        >>> with engine.load(batch=2) as detector:
        ...     results = detector(["docs/parcel.jpg", "docs/scene.jpg"], threshold=0.6)
        >>> [len(result) for result in results]
        [5, 0]
    """

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
        decoders: DecodePool | None = None,
    ) -> None:
        self.labels = labels
        self.settings = settings
        self._graph = graph
        self._read_plan = read_plan  # layer_outputs() reads the weights again to keep them once
        self._device = device
        self._parents = graph.tree_parents
        kind, beta = graph.nms
        self._suppression = Suppression(settings.nms, cast(Kind, kind), beta, agnostic_nms)
        self._precision = precision
        self._passes = passes  # applied to `plan` already
        self._program = self._compile(plan)
        self._intake = replace(intake, scales=not self._program.scales_pictures)
        self._decoders = decoders  # of untrusted pictures
        self._reader: CodeReader | None = None
        self._check_tiles(settings)
        self._layers: Program | None = None  # keeps every layer; compiled on first use
        self._lock = fork_safety.lock()
        if settings.read:
            self.check_reading()

    def __repr__(self) -> str:
        width, height = self.size
        return f"<Detector: {self.task} {self._graph.file}, {width} x {height}, on {self.device}>"

    @property
    def name(self) -> str:
        """The name of the .cfg file without its ending."""
        return PurePath(self._graph.file).stem

    @property
    def task(self) -> str:
        """detector, classifier or other."""
        return self._graph.task

    @property
    def device(self) -> str:
        return self._device.name

    @property
    def has_state(self) -> bool:
        """Whether the result of a picture depends on the pictures before it."""
        return any(tensor.is_state for tensor in self._program.plan.tensors)

    @property
    def is_untrusted(self) -> bool:
        """Whether pictures are decoded in processes with limits, and videos are refused."""
        return self._decoders is not None

    @property
    def runs_at_once(self) -> int:
        """How many threads it takes to keep the device busy."""
        return 1 if self.has_state else max(1, self._program.runs_ahead)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the network's input."""
        return self._graph.net.width, self._graph.net.height

    @property
    def graph(self) -> Graph:
        """The network: its layers with their shapes."""
        return self._graph

    def read_plan(self) -> Plan:
        """Read the weights again; return the network as operations, without any fusion."""
        return self._read_plan()

    @property
    def suppression(self) -> Suppression:
        """How overlapping boxes of one class are suppressed."""
        return self._suppression

    @property
    def leaves(self) -> Array:
        """Whether each class of a classifier is a leaf of the class tree; all are without one."""
        return class_tree.leaves(self._parents or (-1,) * self._graph.classes)

    @property
    def memory(self) -> Memory:
        """Bytes held on the device, without those of layer_outputs()."""
        return self._program.memory

    # ------------------------------------------------------------ pictures

    @overload
    def __call__(
        self,
        source: Source | int,
        *,
        bgr: bool = False,
        threshold: float | None = None,
        nms: float | None = None,
        classes: Collection[str | int] | None = None,
        max_detections: int | None = None,
        read: bool | None = None,
        tiles: Tiles | None = None,
        overlap: float | None = None,
    ) -> Result: ...

    @overload
    def __call__(
        self,
        source: list[OneSource] | tuple[OneSource, ...],
        *,
        bgr: bool = False,
        threshold: float | None = None,
        nms: float | None = None,
        classes: Collection[str | int] | None = None,
        max_detections: int | None = None,
        read: bool | None = None,
        tiles: Tiles | None = None,
        overlap: float | None = None,
    ) -> list[Result]: ...

    @within_memory("detector")
    def __call__(
        self,
        source: Any,
        *,
        bgr: bool = False,
        threshold: float | None = None,
        nms: float | None = None,
        classes: Collection[str | int] | None = None,
        max_detections: int | None = None,
        read: bool | None = None,
        tiles: Tiles | None = None,
        overlap: float | None = None,
    ) -> Any:
        """Return the Result of a picture, or a list of them for a list or tuple.

        A picture is a path, a URL, bytes, a file, a Pillow image or an array (height, width,
        channels), in RGB order unless `bgr`. A folder, pattern, .txt list or video stands for its
        pictures, in a list or alone; alone it gives a list, too, which the types do not show.
        `threshold`, `nms`, `classes`, `max_detections`, `read`, `tiles` and `overlap` replace those
        of load() for this call; tiles="none" turns tiles off.
        A classifier gives a Classification instead of each Result: see classify().
        """
        self._refuse_without_pictures()
        settings = self._settings(
            threshold, nms, classes, max_detections, read, tiles=tiles, overlap=overlap
        )
        is_several = isinstance(source, (list, tuple))
        if not is_several and (name := name_of(source)) is not None and not is_file(name):
            _refuse_endless(name)
            is_several = not is_single(name)
            source = [source] if is_several else RemotePicture(name)
        if is_several:
            for name in filter(None, map(name_of, source)):
                _refuse_endless(name)
            pictures = pictures_of(source, is_untrusted=self.is_untrusted)
            return list(self._stream(pictures, "raise", settings, bgr=bgr, keep="if needed"))
        batch = self._intake.prepare([source], bgr=bgr, settings=settings)
        (outcome,) = self._outcomes_of(batch, (settings,), keep="if needed")
        if isinstance(outcome, ImageError):
            raise outcome
        return outcome

    @overload
    def classify(self, source: Source | int, *, bgr: bool = False) -> Classification: ...

    @overload
    def classify(
        self, source: list[OneSource] | tuple[OneSource, ...], *, bgr: bool = False
    ) -> list[Classification]: ...

    def classify(self, source: Any, *, bgr: bool = False) -> Any:
        """Return the Classification of a picture, or a list; this is a classifier's own call."""
        if self.task != "classifier":
            raise InputError(f"{self._graph.file}: is no classifier. Call the detector itself")
        return self(source, bgr=bgr)

    @within_memory("detector")
    def prepare(
        self,
        source: Source,
        *,
        bgr: bool = False,
        max_pixels: int | None = None,
        settings: Settings | None = None,
        decoder: Decoder | None = None,
    ) -> Batch:
        """Read and scale one picture for run(), on any thread; raises its ImageError.

        `settings` are those of its run, which tell whether it is cut into tiles. `decoder` decodes
        an encoded picture in place of this process.
        """
        self._refuse_without_pictures()
        settings = self.settings if settings is None else settings
        self._check_tiles(settings)
        batch = self._intake.prepare(
            [source], bgr=bgr, max_pixels=max_pixels, settings=settings, decoder=decoder
        )
        (picture,) = batch.pictures
        if isinstance(picture, ImageError):
            raise picture
        return batch

    @within_memory("detector")
    def run(self, batch: Batch, settings: Sequence[Settings] | None = None) -> list[Outcome]:
        """Return the results of joined batches of prepare(), with settings for each picture."""
        chosen = (self.settings,) * batch.count if settings is None else tuple(settings)
        if len(chosen) != batch.count:
            raise InputError(f"settings: expected {batch.count}, got {len(chosen)}")
        thresholds = {each.lowest_score for each in chosen}
        if len(thresholds) > 1 and not thresholds_may_differ(self._program.plan):
            pairs = zip(batch.singly(), chosen, strict=True)
            return [self.run(each, [settings])[0] for each, settings in pairs]
        outcomes: list[Outcome] = []
        for outcome in self._outcomes_of(batch, chosen, keep="never"):
            if isinstance(outcome, ImageError):
                raise outcome
            outcomes.append(outcome)
        return outcomes

    def pin(self, frames: Frames) -> Frames:
        """Page-lock an array, so that a GPU reads pictures from it without a copy; return it.

        The array has the type uint8, owns its memory and holds one picture in each row, like the
        buffers of a camera; pass its rows as pictures. A row must not be changed until its result
        is there. The effect lasts until the array or the detector is freed. A CPU needs no pinning.
        """
        check_frames(frames)
        self._program.pin(frames)
        return frames

    @overload
    def stream(
        self,
        sources: Iterable[Source | int | ImageError] | str | PathLike[str] | int,
        *,
        bgr: bool = False,
        on_error: Literal["raise", "skip"] = "raise",
        workers: int = 1,
        keep_pictures: bool = False,
        threshold: float | None = None,
        nms: float | None = None,
        classes: Collection[str | int] | None = None,
        max_detections: int | None = None,
        read: bool | None = None,
        tiles: Tiles | None = None,
        overlap: float | None = None,
        expand: bool = True,
        recursive: bool = False,
        stride: int = 1,
        max_frames: int | None = None,
    ) -> Generator[Result, None, None]: ...

    @overload
    def stream(
        self,
        sources: Iterable[Source | int | ImageError] | str | PathLike[str] | int,
        *,
        bgr: bool = False,
        on_error: Literal["yield"],
        workers: int = 1,
        keep_pictures: bool = False,
        threshold: float | None = None,
        nms: float | None = None,
        classes: Collection[str | int] | None = None,
        max_detections: int | None = None,
        read: bool | None = None,
        tiles: Tiles | None = None,
        overlap: float | None = None,
        expand: bool = True,
        recursive: bool = False,
        stride: int = 1,
        max_frames: int | None = None,
    ) -> Generator[Result | ImageError, None, None]: ...

    def stream(
        self,
        sources: Any,
        *,
        bgr: bool = False,
        on_error: str = "raise",
        workers: int = 1,
        keep_pictures: bool = False,
        threshold: float | None = None,
        nms: float | None = None,
        classes: Collection[str | int] | None = None,
        max_detections: int | None = None,
        read: bool | None = None,
        tiles: Tiles | None = None,
        overlap: float | None = None,
        expand: bool = True,
        recursive: bool = False,
        stride: int = 1,
        max_frames: int | None = None,
    ) -> Generator[Any, None, None]:
        """Yield results in order for any number of pictures.

        `sources` are pictures in any form, and names of folders (`recursive` looks into those
        inside), patterns, .txt lists, videos, cameras and URLs, or a single such name. Of a video
        every `stride`-th frame is read, and at most `max_frames`. Without `expand` each source is
        one picture, and a name is that of its file: for names that strangers choose. The other
        arguments are those of a call.
        One thread iterates over `sources` and `workers` threads prepare its pictures, each at most
        one batch ahead. On a GPU these threads also submit the runs, and there are two more of
        them, with several GPUs one more for each. If `sources` has a method `stop`, it is called
        when the stream is closed, so that an iteration which waits for a picture can end.
        A picture that cannot be read raises its ImageError; with on_error="yield" the error takes
        the place of the result, with "skip" nothing does. An ImageError among the sources counts
        as such a picture. Results hold their picture only with `keep_pictures`.
        """
        if isinstance(sources, (bytes, bytearray, memoryview)):
            raise InputError("sources: expected several pictures, got bytes. Put them in a list")
        if name_of(sources) is not None:
            sources = [sources]
        if not hasattr(sources, "__getitem__"):  # enough for Python to iterate
            check_kind("sources", sources, Iterable, "several pictures")
        workers = whole("workers", workers)
        if on_error not in ON_ERROR:
            hint = suggest(on_error, ON_ERROR)
            raise InputError(f"on_error: expected {', '.join(ON_ERROR)}, got {on_error!r}.{hint}")
        self._refuse_without_pictures()
        keep: Keep = "always" if keep_pictures else "never"
        settings = self._settings(
            threshold, nms, classes, max_detections, read, tiles=tiles, overlap=overlap
        )
        pictures = sources
        stopped = Event()

        def stop() -> None:
            stopped.set()
            if callable(own := getattr(sources, "stop", None)):
                own()

        if expand:
            selection = FrameSelection(stride, max_frames)
            pictures = pictures_of(
                sources,
                selection,
                recursive=recursive,
                is_untrusted=self.is_untrusted,
                stopped=stopped,
            )
        return self._stream(
            *(pictures, on_error, settings),
            bgr=bgr,
            keep=keep,
            workers=workers,
            stop=stop,
        )

    def _settings(
        self,
        threshold: float | None,
        nms: float | None,
        classes: Collection[str | int] | None,
        max_detections: int | None,
        read: bool | None,
        *,
        tiles: Tiles | None,
        overlap: float | None,
    ) -> Settings:
        """Return the settings of load() with those that a call replaces."""
        given = {
            "threshold": threshold,
            "nms": nms,
            "max_detections": max_detections,
            "read": read,
            "tiles": tiles,
            "overlap": overlap,
        }
        changes: dict[str, Any] = {name: each for name, each in given.items() if each is not None}
        if classes is not None:
            changes["classes"] = chosen_classes(classes, None, self.labels)
        settings = replace(self.settings, **changes) if changes else self.settings
        if settings.read:
            self.check_reading()
        self._check_tiles(settings)
        return settings

    def check_reading(self) -> None:
        """Raise InputError if codes cannot be read: without zxing-cpp or classes of codes."""
        self._code_reader()

    def _check_tiles(self, settings: Settings) -> None:
        if settings.tiles is None:
            return
        if self.task != "detector":
            raise InputError(f"tiles: only for detectors, got a {self.task}: {self._graph.file}")
        if self.has_state:
            raise InputError("tiles: not for a recurrent network, which sees pictures in order")

    def _stream(
        self,
        sources: Iterable[Wanted],
        on_error: str,
        settings: Settings,
        *,
        bgr: bool,
        keep: Keep,
        workers: int = 1,
        stop: Callable[[], object] | None = None,
    ) -> Generator[Any, None, None]:
        outcomes: Iterator[Outcome | ImageError]
        with within_memory("detector"), ExitStack() as stack:
            if settings.tiles is None:
                chunks = _chunks(sources, self.settings.batch)
                runs = self._runs(chunks, settings, stack, bgr=bgr, workers=workers, stop=stop)
                outcomes = (each for run in runs for each in self._outcomes(run, keep=keep))
            else:
                prepare = partial(self._intake.prepare, bgr=bgr, settings=settings)
                singly = pipelined(_chunks(sources, 1), prepare, workers=workers, stop=stop)
                batches = stack.enter_context(closing(singly))
                outcomes = self._filled(((each, settings) for each in batches), keep=keep)
            for outcome in outcomes:
                if not isinstance(outcome, ImageError) or on_error == "yield":
                    yield outcome
                elif on_error == "raise":
                    raise outcome

    def _runs(
        self,
        chunks: Iterator[list[Wanted]],
        settings: Settings,
        stack: ExitStack,
        *,
        bgr: bool,
        workers: int,
        stop: Callable[[], object] | None,
    ) -> Iterator[_Run]:
        """Prepare and submit batches ahead of the caller."""
        prepare = partial(self._intake.prepare, bgr=bgr)

        def prepared() -> Generator[Batch]:
            return pipelined(chunks, prepare, workers=workers, stop=stop)

        def submit(batch: Batch) -> _Run:
            return self._submit(batch, (settings,) * len(batch.placed))

        if not self._program.runs_ahead:
            return map(submit, stack.enter_context(closing(prepared())))
        if self.has_state:  # runs are submitted in order, by one thread
            batches = stack.enter_context(closing(prepared()))
            return stack.enter_context(closing(pipelined(batches, submit, stop=stop)))
        # One thread prepares and submits a batch: another hand-over would cost more Python time.
        runs = pipelined(
            chunks,
            lambda chunk: submit(prepare(chunk)),
            workers=workers + self._program.runs_ahead,
            stop=stop,
        )
        return stack.enter_context(closing(runs))

    def _submit(self, batch: Batch, settings: tuple[Settings, ...] | None = None) -> _Run:
        """Start a run of a batch on the device."""
        if not batch.placed:
            return _Run(batch, (), None)
        if settings is None:
            settings = (self.settings,) * len(batch.placed)
        if self.task == "classifier":
            return _Run(batch, settings, self._program.submit_forward(batch.placed))
        chosen: list[DetectionSettings] = []
        for each, before in zip(settings, (None, *settings), strict=False):
            chosen.append(chosen[-1] if each is before else self._detection_settings(each))
        return _Run(batch, settings, self._program.submit(batch.placed, chosen))

    def _outcomes_of(
        self, batch: Batch, settings: Sequence[Settings], *, keep: Keep
    ) -> Iterator[Outcome | ImageError]:
        """Run a batch; yield the result or the error of each picture, in order."""
        if not batch.is_cut:
            return self._outcomes(self._submit(batch, tuple(settings)), keep=keep)
        return self._filled(zip(batch.singly(), settings, strict=True), keep=keep)

    def _filled(
        self, pictures: Iterable[tuple[Batch, Settings]], *, keep: Keep
    ) -> Iterator[Outcome | ImageError]:
        """Do the same for single pictures, some of them cut into tiles, in full runs."""
        made: dict[tuple[Settings, bool], DetectionSettings] = {}

        def submit(
            rows: Sequence[Placed], settings: Sequence[Settings], are_tiles: Sequence[bool]
        ) -> TimedTicket[list[Boxes]]:
            for key in zip(settings, are_tiles, strict=True):
                if key not in made:
                    made[key] = self._detection_settings(key[0], of_tile=key[1])
            chosen = [made[key] for key in zip(settings, are_tiles, strict=True)]
            return self._program.submit(rows, chosen)

        rows, ahead = self.settings.batch, max(0, self._program.runs_ahead - 1)
        for each in filled_runs(pictures, submit, rows=rows, ahead=ahead):
            yield each.entry if isinstance(each.entry, ImageError) else self._merged(each, keep)

    def _merged(self, picture: Pending, keep: Keep) -> Outcome | ImageError:
        """Return the result of a picture, given what was found in its rows."""
        entry, settings = picture.entry, picture.settings
        assert isinstance(entry, Prepared)
        found, timing = picture.found[0], {"prepare": entry.milliseconds, **picture.milliseconds}
        if entry.tiles:
            start = time.perf_counter()
            suppression = self._detection_settings(settings).suppression
            most = settings.most_boxes
            found = merge(picture.found, entry.tiles, suppression, max_detections=most)
            timing["suppress"] = timing.get("suppress", 0.0) + (time.perf_counter() - start) * 1e3
        return self._outcome(entry, found, timing, settings, keep=keep)

    def _detection_settings(
        self, settings: Settings, *, of_tile: bool = False
    ) -> DetectionSettings:
        suppression = self._suppression
        if settings.nms != suppression.threshold:
            suppression = replace(suppression, threshold=settings.nms)
        return DetectionSettings(
            settings.lowest_score,
            suppression,
            self.settings.hierarchy,
            settings.classes,
            None if of_tile else settings.most_boxes,  # counted once the tiles are merged
        )

    def _outcomes(self, run: _Run, *, keep: Keep) -> Iterator[Outcome | ImageError]:
        """Yield the result or the error of each picture, in order."""
        rows: Sequence[Any] = ()
        timing: dict[str, float] = {}
        if run.ticket is not None:
            rows = run.ticket.result()
            rows = rows[0] if self.task == "classifier" else rows
            timing = {stage: each / len(rows) for stage, each in run.ticket.milliseconds.items()}
        remaining = iter(zip(rows, run.settings, strict=True))
        for entry in run.batch.pictures:
            if isinstance(entry, ImageError):
                yield entry
            else:
                found, chosen = next(remaining)
                times = {"prepare": entry.milliseconds, **timing}
                yield self._outcome(entry, found, times, chosen, keep=keep)

    def _outcome(
        self,
        entry: Prepared,
        found: Any,
        timing: dict[str, float],
        settings: Settings,
        *,
        keep: Keep,
    ) -> Outcome | ImageError:
        """Return the result of a picture, given its Boxes or the probabilities of its classes."""
        picture = entry.picture
        if self.task == "classifier":
            if np.isnan(found).any():
                name = "picture" if picture.path is None else shown(picture.path)
                return ImageError(f"{name}: probabilities: expected numbers, got NaN")
            return Classification(
                picture.size,
                self._multiply_down_the_tree(found.ravel()),
                self.labels,
                picture.path,
                timing=timing,
                top_k=settings.top_k,
            )
        codes = None
        if settings.read:
            start = time.perf_counter()
            found, codes = self._read_codes(picture, found, settings)
            timing["read"] = (time.perf_counter() - start) * 1e3
        return Result.of(
            found,
            picture,
            names=self.labels,
            timing=timing,
            oriented=self._intake.orient,
            codes=codes,
            tiles=entry.tiles,
            keep_picture=keep == "always" or (keep == "if needed" and not self._is_kept(picture)),
            is_untrusted=self.is_untrusted,
        )

    def _is_kept(self, picture: Picture) -> bool:
        """Tell whether the path of a picture is enough to read it again: no video, no URL."""
        if picture.path is None or self.is_untrusted:
            return False
        return media_of(picture.path).kind is MediaKind.PICTURE

    def _read_codes(
        self, picture: Picture, found: Boxes, settings: Settings
    ) -> tuple[Boxes, list[Code | None]]:
        """Return the boxes that have a text or the score to be returned, and their texts."""
        reader = self._code_reader()
        found, codes = reader.read(picture.pixels, found, classes=settings.classes)
        pairs = enumerate(zip(found.scores.tolist(), codes, strict=True))
        rows = [row for row, (score, code) in pairs if code or score > settings.threshold]
        rows = rows[: settings.max_detections]
        return found.take(np.array(rows, np.int64)), [codes[row] for row in rows]

    def _code_reader(self) -> CodeReader:
        """Return the reader, made on first use, or raise what stops it from working."""
        with self._lock:
            if self._reader is None:
                from engine.codes.reader import CodeReader

                if self.task != "detector":
                    raise InputError(f"read: {self._graph.file}: is not a detector")
                self._reader = CodeReader(self.labels)
            return self._reader

    def _multiply_down_the_tree(self, probabilities: Array) -> Array:
        """Turn conditional probabilities of a class tree into absolute ones, as darknet does."""
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
    def forward(self, x: Array) -> tuple[Floats, ...]:
        """Return the network's output, then that of each detection layer, for one batch.

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
    def layer_outputs(self, x: Array) -> list[Floats]:
        """Return the output of every layer, in the order of the .cfg, for one batch.

        This runs on separate memory, with a recurrent state of its own.
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
        with np.errstate(over="ignore"):  # values beyond the range become infinite
            return x.astype(np.float32, copy=False)

    # ------------------------------------------------------------ export

    @within_memory("detector")
    def export(
        self,
        path: str | PathLike[str],
        *,
        layout: str | None = None,
        nms: bool = False,
        threshold: float | None = None,
        iou: float | None = None,
        max_detections: int | None = None,
        half: bool = False,
        dynamic: bool = False,
        batch: int | None = None,
        opset: int | None = None,
        overwrite: bool = False,
    ) -> Model:
        """Write the network as an .onnx file; return the model, with its inputs and outputs.

        layout   "raw" (the outputs of the detection layers), or all boxes as "darknet", "yolov5"
                 or "yolov8" has them; by default raw, with `nms` darknet
        nms      the best boxes of each picture instead: scores above `threshold` (0.25), an overlap
                 of at most `iou` (0.45) within a class, at most `max_detections` (300)
        half     compute in float16; input and outputs stay float32
        dynamic  take any height and width
        batch    the batch size, by default any; `opset`: by default the lowest possible
        """
        from engine.exporting import ExportOptions, export
        from engine.files.atomic import write_new

        options = ExportOptions(
            layout=layout,
            nms=nms,
            threshold=threshold,
            iou=iou,
            max_detections=max_detections,
            half=half,
            dynamic=dynamic,
            batch=batch,
            opset=opset,
        )
        check_kind("path", path, (str, PathLike), "a file's name")
        if PurePath(path).suffix.lower() != ".onnx":
            raise InputError(f"{shown(str(path))}: expected a name that ends in .onnx")
        model = export(self._graph, self._read_plan(), self.labels, options)
        write_new(Path(path), model.content, overwrite=overwrite)
        return model

    # ------------------------------------------------------------ life

    def reset(self) -> None:
        """Set the state of a recurrent network back to zero."""
        for program in (self._program, self._layers):
            if program is not None:
                program.reset()

    def close(self) -> None:
        """Free the device; the detector cannot be used any more."""
        self._device.close()
        if self._decoders is not None:
            self._decoders.close()

    def __enter__(self) -> Detector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _compile(self, plan: Plan) -> Program:
        return self._device.compile(plan, batch=self.settings.batch, precision=self._precision)


def _refuse_endless(name: str) -> None:
    if is_endless(name):
        raise InputError(f"{shown(name)}: has no end. Use stream()")


def _chunks(sources: Iterable[Wanted], size: int) -> Iterator[list[Wanted]]:
    remaining = iter(sources)
    while chunk := list(islice(remaining, size)):
        yield chunk
