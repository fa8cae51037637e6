"""Detector: from pictures and arrays to what a network finds in them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from operator import is_
from os import PathLike
from pathlib import Path, PurePath
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast, overload
from weakref import WeakValueDictionary

import numpy as np

from engine.arguments import as_array, check_kind, naming_unknown, whole
from engine.arrays import Array, Floats
from engine.backends.base import (
    Device,
    JpegDecoder,
    Memory,
    Program,
    VideoDevice,
    thresholds_may_differ,
)
from engine.concurrency import fork_safety
from engine.darknet.graph import Graph, named_task
from engine.errors import ImageError, InputError, suggest, within_memory
from engine.files.naming import shown
from engine.inputs import Batch, Intake, Wanted, check_frames
from engine.passes import optimise
from engine.passes.quantise import ALL_FLOAT, LayerRanges, quantise
from engine.picture_runs import Keep, Outcome, Pace, PictureRuns
from engine.plan.build import Plan
from engine.settings import LARGEST_WORKERS, Settings, Tiles
from engine.sources.card_decoder import CardDecoder
from engine.sources.media import without_file_scheme
from engine.sources.pictures import (
    are_at_hand,
    is_file,
    is_single,
    name_of,
    pictures_of,
    refuse_endless,
)
from engine.sources.reader import FrameSelection
from engine.sources.remote_picture import RemotePicture
from engine.sources.unchanging import unchanging
from engine.vision import class_tree
from engine.vision.boxes import Kind, Suppression
from engine.vision.classes import chosen_classes
from engine.vision.classification import Classification
from engine.vision.image import Decoder, Picture, Source, is_image
from engine.vision.result import Result

if TYPE_CHECKING:
    from engine.export.onnx import Model
    from engine.vision.decode_pool import DecodePool

Frames = TypeVar("Frames", bound=Array)
OneSource = TypeVar("OneSource", bound="Source | int")

_log = logging.getLogger("engine")

_WAITING = 3  # batches of a stream that may finish before an earlier one
_NO_NUMBERS = ("O", "U", "S", "T")  # NumPy's dtype kinds for objects and text
_CHANNELS = (1, 3, 4)  # valid for a picture
_RGB = 3  # channels

ON_ERROR = ("raise", "yield", "skip")


class Detector:
    """A network on a device. Any number of threads may call it; `close` or `with` frees it.

    Examples:
        >>> with engine.load(batch=2) as detector:
        ...     results = detector(["docs/parcel.jpg", "docs/scene.jpg"], threshold=0.6)
        >>> [len(result) for result in results]
        [7, 0]
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
        ranges: LayerRanges | None = None,
        decoders: DecodePool | None = None,
        jpeg_decoder: JpegDecoder | None = None,
        videos: VideoDevice | None = None,
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
        self._passes = passes  # already applied to `plan`
        self._ranges = ranges  # for int8 layers
        self._program = self._compile(plan)
        self._intake = replace(intake, scales=not self._program.scales_pictures)
        self._decoders = decoders  # for untrusted pictures
        self.card_decoder = None if videos is None else CardDecoder(videos)  # for videos
        self._runs = PictureRuns(
            *(graph, self._program, self._intake, self._suppression, settings),
            labels=labels,
            is_untrusted=decoders is not None,
            jpeg_decoder=jpeg_decoder,
        )
        self._check_tiles(settings)
        self._pinned: WeakValueDictionary[int, Array] = WeakValueDictionary()  # by id()
        self._latest: tuple[tuple[object, ...], Settings] = (settings, *[None] * 5), settings
        self._layers: Program | None = None  # keeps every layer; compiled on first use
        self._lock = fork_safety.lock()
        if settings.read:
            self.check_reading()

    def __repr__(self) -> str:
        width, height = self.size
        return f"<Detector: {self.task} {self._graph.file}, {width} x {height}, on {self.device}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Detector cannot be pickled or copied, because it holds memory and threads of its "
            "device: call engine.load() in each process"
        )

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
        return self._runs.has_state

    @property
    def is_untrusted(self) -> bool:
        """Whether pictures are decoded in processes with limits, and videos are refused."""
        return self._decoders is not None

    @property
    def runs_at_once(self) -> int:
        """The number of threads needed to keep the device busy."""
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
        """Read the same weights again; return the network as an unfused plan."""
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

    @naming_unknown
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
        pictures, in a list or alone; even alone it gives a list, which the type hints do not show.
        `threshold`, `nms`, `classes`, `max_detections`, `read`, `tiles` and `overlap` replace those
        of load() for this call; tiles="none" turns tiles off.
        A classifier gives a Classification instead of each Result: see classify().
        """
        self._refuse_without_pictures()
        settings = self._settings(
            threshold, nms, classes, max_detections, read, tiles=tiles, overlap=overlap
        )
        if not bgr:
            result = self._runs.of_array(source, settings, keep="if needed")
            if result is not None:
                return result
        is_several = isinstance(source, (list, tuple))
        if not is_several and (name := name_of(source)) is not None and not is_file(name):
            refuse_endless(name)
            if is_file(path := without_file_scheme(name)):
                source = path
            else:
                is_several = not is_single(name)
                source = [source] if is_several else RemotePicture(name)
        if is_several:
            for name in filter(None, map(name_of, source)):
                refuse_endless(name)
            expand = self._expansion(FrameSelection(card=self.card_decoder, may_be_endless=False))
            pictures = expand(source, defers_folders=not self.has_state)
            outcomes = self._runs.stream(
                *(pictures, "raise", settings), bgr=bgr, keep="if needed", expand=expand
            )
            return list(outcomes)
        ahead = self._runs.device_ahead(settings, "if needed")
        batch = self._intake.prepare([source], bgr=bgr, settings=settings, ahead=ahead)
        (outcome,) = self._runs.outcomes_of(batch, (settings,), keep="if needed")
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
        """Return the Classification of a picture, or a list; a classifier's call does the same."""
        if self.task != "classifier":
            raise InputError(f"{self._graph.file}: is not a classifier. Call the detector itself")
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
        """Read and scale one picture for run(), on any thread; raise its ImageError.

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
        for outcome in self._runs.outcomes_of(batch, chosen, keep="never"):
            if isinstance(outcome, ImageError):
                raise outcome
            outcomes.append(outcome)
        return outcomes

    def pin(self, frames: Frames) -> Frames:
        """Page-lock an array, so that a GPU can read pictures from it without a copy; return it.

        The array has the type uint8, owns its memory and holds one picture in each row, like the
        buffers of a camera; pass its rows as pictures. A row must not be changed until its result
        has arrived. The array stays pinned until it or the detector is freed. On a CPU, pinning has
        no effect.
        """
        check_frames(frames)
        self._program.pin(frames)
        self._pinned[id(frames)] = frames
        return frames

    def _is_pinned(self, array: Array) -> bool:
        """Return whether an array is part of a pinned one, which the caller keeps unchanged."""
        owner = array if array.base is None else array.base
        return self._pinned.get(id(owner)) is owner

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
        at_once: int = 1,
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
        at_once: int = 1,
    ) -> Generator[Result | ImageError, None, None]: ...

    @naming_unknown
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
        at_once: int = 1,
    ) -> Generator[Any, None, None]:
        """Yield results in order for any number of pictures.

        `sources` are pictures in any form, and names of folders (`recursive` looks into those
        inside), patterns, .txt lists, videos, cameras and URLs, or a single such name. Every
        `stride`-th frame of a video is read, and at most `max_frames`. Adjacent videos in a list
        are read together, `at_once` at a time: their frames are interleaved, which keeps the
        decoders of a GPU busy. Without `expand`, each source is one picture, and a name is a file
        name; use this for untrusted names. The other arguments are those of a call.

        One thread iterates over `sources` and `workers` threads prepare its pictures, each at most
        one batch ahead. On a GPU these threads also submit the runs, and three more threads are
        added (with several GPUs, one more for each), up to at least six if there are that many
        cores. If `sources` is a list without cameras and live streams, up to three more batches are
        read ahead.

        On Linux, with at least four `workers` (two on a GPU), files and bytes are decoded in
        processes once a hundred have been read: one process for each worker, and three more on a
        GPU. They end with the detector, or after a minute without pictures.

        Pictures from a generator, or any other iterable that is not a sequence, are consumed
        immediately: arrays and buffers are copied, open files read, and Pillow images decoded. So
        it may reuse one buffer, and close its files. File names let the workers do more. The
        pictures of a list, and rows of pin(), are used without a copy.

        If `sources` has a method `stop`, it is called when the stream is closed, so that an
        iteration that waits for a picture can end.

        A picture that cannot be read raises its ImageError; with on_error="yield" the error takes
        the place of the result, with "skip" nothing does. An ImageError among the sources counts as
        such a picture. Results hold their picture only with `keep_pictures`.
        """
        if name_of(sources) is not None:  # first, because numpy.str_ has the attributes of an array
            sources = [sources]
        _refuse_one(sources)
        self._tell_of_channels_first(sources)
        if not hasattr(sources, "__getitem__"):  # which suffices for iteration
            check_kind("sources", sources, Iterable, "several pictures")
        workers = whole("workers", workers, most=LARGEST_WORKERS)
        if on_error not in ON_ERROR:
            hint = suggest(on_error, ON_ERROR)
            raise InputError(f"on_error: expected {', '.join(ON_ERROR)}, got {on_error!r}.{hint}")
        self._refuse_without_pictures()
        take = partial(self._intake.read, bgr=bgr)
        sources = unchanging(given := sources, self._is_pinned, take)
        keep: Keep = "always" if keep_pictures else "never"
        settings = self._settings(
            threshold, nms, classes, max_detections, read, tiles=tiles, overlap=overlap
        )
        pictures, expansion = sources, None
        stopped = Event()

        def stop() -> None:
            stopped.set()
            if callable(own := getattr(given, "stop", None)):
                own()

        if expand:
            selection = FrameSelection(stride, max_frames, card=self.card_decoder, at_once=at_once)
            expansion = self._expansion(selection, recursive=recursive, stopped=stopped)
            pictures = expansion(sources, defers_folders=not self.has_state)
        return self._runs.stream(
            *(pictures, on_error, settings),
            bgr=bgr,
            keep=keep,
            pace=Pace(workers, _WAITING if are_at_hand(given) else 0, stop),
            expand=expansion,
        )

    def _expansion(
        self, selection: FrameSelection, **options: Any
    ) -> Callable[..., Iterator[Wanted]]:
        """Return the function that turns sources into pictures; see pictures_of()."""
        is_untrusted = self.is_untrusted
        return partial(pictures_of, selection=selection, is_untrusted=is_untrusted, **options)

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
        """Return the settings of load() with a call's replacements.

        The latest settings are cached, because calls in a loop pass the same objects, and creating
        and checking settings takes longer than the rest of a call before its run.
        """
        asked = self.settings, threshold, nms, max_detections, read, overlap
        latest, known = self._latest
        may_know = classes is None and tiles is None  # the others cannot change in place
        if may_know and all(map(is_, asked, latest)):
            return known
        given = {
            "threshold": threshold,
            "nms": nms,
            "max_detections": max_detections,
            "read": read,
            "tiles": tiles,
            "overlap": overlap,
        }
        changes: dict[str, Any] = {name: each for name, each in given.items() if each is not None}
        if self.task == "classifier" and (changes or classes is not None):
            self._refuse_without_boxes(next(iter(changes), "classes"))
        if classes is not None:
            changes["classes"] = chosen_classes(classes, None, self.labels)
        settings = replace(self.settings, **changes) if changes else self.settings
        if settings.read:
            self.check_reading()
        self._check_tiles(settings)
        if may_know:
            self._latest = asked, settings
        return settings

    def read_codes(self, picture: Picture, result: Result, settings: Settings) -> Result:
        """Read the codes of a result of run() with the settings `settings.unread`.

        Any thread may do this. run() itself reads the codes of all its pictures one by one.
        """
        return self._runs.read_codes(picture, result, settings)

    def check_reading(self) -> None:
        """Raise InputError if zxing-cpp or classes of codes are missing."""
        self._runs.code_reader()

    def _check_tiles(self, settings: Settings) -> None:
        if settings.tiles is None:
            return
        if self.task != "detector":
            self._refuse_without_boxes("tiles")
        if self.has_state:
            raise InputError("tiles: not for a recurrent network, which sees pictures in order")

    def _refuse_without_boxes(self, name: str) -> NoReturn:
        raise InputError(
            f"{name}: only for detectors, got {named_task(self.task)}: {self._graph.file}"
        )

    def _refuse_without_pictures(self) -> None:
        if self.task == "other":
            raise InputError(
                f"{self._graph.file}: finds neither boxes nor classes in pictures. Use forward()"
            )

    def _tell_of_channels_first(self, sources: Any) -> None:
        """Log that a tensor that may be one colour picture is taken as several grey pictures."""
        if self._graph.net.channels != _RGB or not _is_of_torch(sources):
            return
        shape = _shape_of(sources)
        if shape is not None and len(shape) == 3 and shape[0] == _RGB:
            taken = f"a tensor of shape {shape} is taken as {_RGB} grey pictures"
            hint = "If it is one in colour, pass [tensor.permute(1, 2, 0)]"
            _log.warning("sources: %s. %s", taken, hint)

    # ------------------------------------------------------------ arrays

    @within_memory("detector")
    def forward(self, x: Array) -> tuple[Floats, ...]:
        """Return the last layer's output, then those of other detection layers, for one batch.

        `x` is float32 (rows, channels, height, width), or (rows, inputs) without an image.
        """
        return self._program.forward(self._rows(x))

    @within_memory("detector")
    def candidates(
        self, x: Array, *, threshold: float | None = None, hierarchy: float | None = None
    ) -> list[Array]:
        """Return the input of vision.postprocess for each row of one batch, given as for forward().

        `threshold` and `hierarchy` default to those of load(). If the network's values overflow,
        scores are NaN.
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

        This uses separate memory and a separate recurrent state. The first call reads the weights
        again, and raises WeightsError if their file has changed since load().
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
        with np.errstate(over="ignore"):  # values out of range become infinite
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

        The weights are read again; a WeightsError is raised if their file has changed since load().
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
        check_kind("overwrite", overwrite, bool, "True or False")
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
        """Release the device; the detector cannot be used afterwards."""
        with ExitStack() as closing:  # close all, even if a GPU is lost
            if self._decoders is not None:
                closing.callback(self._decoders.close)
            closing.callback(self._runs.close)
            closing.callback(self._device.close)

    def __enter__(self) -> Detector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _compile(self, plan: Plan) -> Program:
        if self._ranges is not None:
            plan = quantise(plan, self._ranges)
            if not plan.scales:
                _log.warning("%s: int8: %s", self._graph.file, ALL_FLOAT)
        return self._device.compile(plan, batch=self.settings.batch, precision=self._precision)


def _refuse_one(sources: object) -> None:
    """Raise if `sources` of stream() is one picture: its bytes, lines or rows are not pictures."""
    what, hint = "", ". Put it in a list"
    if isinstance(sources, (bytes, bytearray, memoryview)):
        what = "bytes"
    elif is_image(sources):
        what = "one Pillow image"
    elif isinstance(sources, Picture):
        what = "one Picture"
    elif hasattr(sources, "readline"):  # not read(): a camera that yields frames may have it
        what = "a file"
    elif (shape := _shape_of(sources)) == ():
        what, hint = "one value in an array without axes", ". Pass array.item()"
    elif shape is not None and _is_one(sources, shape):
        what = f"one array of shape {shape}"
        hint = hint if len(shape) > 1 else ""
    if what:
        raise InputError(f"sources: expected several pictures, got {what}{hint}")


def _shape_of(sources: Any) -> tuple[int, ...] | None:
    """Return the shape of an array from any library, or None.

    Only attributes are read: a data set or a camera may also have `__array__`, which would read all
    pictures or wait for one.
    """
    if not hasattr(sources, "__array__") or getattr(sources, "dtype", None) is None:
        return None
    try:
        return tuple(sources.shape)
    except (AttributeError, TypeError):
        return None


def _is_one(array: Any, shape: tuple[int, ...]) -> bool:
    """Return whether the rows of an array form one picture rather than several.

    (n, height, width) means n grey pictures, whatever n is: it may be the last of many batches.
    """
    if getattr(array.dtype, "kind", None) in _NO_NUMBERS:
        return False
    is_flat = isinstance(array, np.ndarray) and len(shape) == 1
    return is_flat or len(shape) == 2 or (len(shape) == 3 and shape[2] in _CHANNELS)


def _is_of_torch(sources: Any) -> bool:
    return str(getattr(sources, "dtype", "")).startswith("torch.")
