"""YOLO: load a darknet network, predict, evaluate and export with ultralytics' arguments."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from math import ceil
from os import PathLike
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from engine import loading
from engine.arguments import check_kind, is_whole, whole
from engine.backends import device_name
from engine.compat.ultralytics.detectors import Detectors
from engine.compat.ultralytics.following import Following, check_tracker
from engine.compat.ultralytics.keywords import check
from engine.compat.ultralytics.metrics import Metrics
from engine.compat.ultralytics.results import Results, inside
from engine.compat.ultralytics.run_folder import RunFolder
from engine.detector import Detector
from engine.errors import ImageError, InputError, suggest
from engine.files.naming import shown
from engine.files.stamp import is_of_file
from engine.loading import Size
from engine.sources.item import Item
from engine.sources.pictures import is_file, items_of, name_of
from engine.sources.reader import FrameSelection
from engine.vision.image import Source

_log = logging.getLogger("engine")

Sources: TypeAlias = "Source | int | Iterable[Source | int]"
_Files: TypeAlias = "tuple[str | Path, str | Path | None, Any]"  # .cfg, .weights and names

_FOREIGN = (".pt", ".pth", ".onnx", ".engine", ".yaml", ".yml", ".torchscript", ".tflite")
# What ultralytics' predict() does with other values is not done here.
_ONLY = {
    "augment": False,
    "compile": False,
    "dnn": False,
    "embed": None,
    "int8": False,
    "rect": True,
    "retina_masks": False,
    "save_frames": False,
    "save_json": False,
    "stream_buffer": False,
    "visualize": False,
}
_INSTEAD = {
    "tune": "Networks are trained with darknet",
    "benchmark": "Use: python -m engine benchmark",
    "embed": "Use engine.load(…).layer_outputs()",
    "load": "Pass the weights: YOLO(cfg, weights=…)",
    "save": "A network is its .cfg and its .weights file",
    "model": "Use engine.load(…).graph for the layers",
}
_NO_SHOW = (
    "show: expected pictures: each frame of a video would open a viewer of its own. "
    'Use stream=True and cv2.imshow("found", result.plot())'
)
_ONE = (str, Path, bytes, bytearray, memoryview, int, np.ndarray)  # sources that are no lists
_STRIDE = 32  # to which ultralytics rounds sides
_RGB = 3  # channels
_MAX_DETECTIONS = 300  # ultralytics' default


class YOLO:
    """A network, loaded when it is first used, and again for another device, size or precision.

    Each call stands for itself: what is not given is the network's own. The detectors of the latest
    calls are kept, so that calls and streams of several sizes may take turns, on any threads.
    """

    def __init__(
        self,
        model: str | Path,
        task: str | None = None,
        verbose: bool = False,
        *,
        weights: str | Path | None = None,
        names: str | Path | Sequence[str] | Mapping[int, str] | None = None,
    ) -> None:
        """Find the files of a network.

        `model` is a .cfg or a .weights file, whose other files have the same name, or the name of a
        network of the zoo. `weights` and `names` are files with other names.
        """
        if task not in (None, "detect", "classify"):
            raise InputError(f"task: expected detect or classify, got {task!r}")
        if not isinstance(model, (str, PathLike)) or not Path(model).name:
            expected = "expected a .cfg or .weights file, or the name of a network"
            raise InputError(f"model: {expected}, got {model!r}. See: python -m engine models list")
        self.model_name = str(model)
        self._files = _files_of(Path(model), weights, names)
        # not a method: a cycle of references would leave a dropped network to the cyclic collector
        self._detectors = Detectors(partial(_loaded, self._files, self.model_name, task))
        self._device = "auto"
        self._following: Following | None = None  # of the latest track()

    def __repr__(self) -> str:
        return f"<YOLO: {self.model_name}>"

    @property
    def names(self) -> dict[int, str]:
        """Return the names of the classes by number."""
        return dict(enumerate(self._any().labels))

    @property
    def task(self) -> str:
        """Return detect or classify."""
        return _task_of(self._any())

    @property
    def device(self) -> str:
        return self._any(device=self._device).device

    def to(self, device: str | int) -> YOLO:
        """Run on another device from now on; one that is missing is an error at once."""
        device = device_name(device)
        if device != self._device:
            self._detectors.forget()
        if device != "cpu":
            self._load(_Options(device=device))
        self._device = device
        return self

    def fuse(self) -> YOLO:
        """Do nothing: batch normalisation is always folded into the weights."""
        return self

    def info(self, detailed: bool = False, verbose: bool = False) -> tuple[int, int, int, float]:
        """Return layers, parameters, gradients (none), and billions of operations."""
        graph = self._any(imgsz=None).graph
        return len(graph.nodes), graph.parameter_count, 0, graph.operations / 1e9

    def close(self) -> None:
        """Free the device, which ends streams; the next call loads the network again."""
        self._detectors.close()

    # ------------------------------------------------------------ prediction

    @overload
    def predict(
        self, source: Sources, *, stream: Literal[False] = False, **options: Any
    ) -> list[Results]: ...

    @overload
    def predict(
        self, source: Sources, *, stream: Literal[True], **options: Any
    ) -> Iterator[Results]: ...

    def predict(self, source: Any, *, stream: bool = False, **options: Any) -> Any:
        """Return the Results of every picture in a list, or with `stream` one after another.

        Options: conf, iou, imgsz, device, half, classes, max_det, agnostic_nms, batch, vid_stride,
        save, save_txt, save_conf, save_crop, show, project, name, exist_ok, line_width,
        show_labels, show_conf, show_boxes. Arrays are in BGR order.
        A picture that cannot be read is logged and left out; one that is given alone is an error.
        """
        found = self._predict(source, _Options(**_known(options)), keeps=not stream)
        return found if stream else list(found)

    __call__ = predict

    @overload
    def track(
        self,
        source: Sources,
        *,
        stream: Literal[False] = False,
        persist: bool = False,
        tracker: str | None = None,
        **options: Any,
    ) -> list[Results]: ...

    @overload
    def track(
        self,
        source: Sources,
        *,
        stream: Literal[True],
        persist: bool = False,
        tracker: str | None = None,
        **options: Any,
    ) -> Iterator[Results]: ...

    def track(
        self,
        source: Any,
        *,
        stream: bool = False,
        persist: bool = False,
        tracker: str | None = None,
        **options: Any,
    ) -> Any:
        """Return predict(), whose boxes keep an identity from frame to frame in `boxes.id`.

        Identities begin anew with each video and each call, unless `persist`: for a loop that
        passes one frame after another. `conf` is 0.1, since boxes of low scores continue tracks.
        `boxes.id` is None for a picture in which nothing is followed.
        """
        check_tracker(tracker)
        for name, default in (("conf", 0.1), ("batch", 1)):
            if options.get(name) is None:
                options[name] = default
        given = _Options(**_known(options, "track()"))
        if self._load(given).task != "detector":
            raise InputError(f"track(): expected a detector, got a {self.task}")
        if self._following is None or not persist:
            self._following = Following()
        follow = partial(self._following.follow, persist=persist)
        found = self._predict(source, given, keeps=not stream, follow=follow)
        return found if stream else list(found)

    def _predict(
        self,
        source: Any,
        options: _Options,
        *,
        keeps: bool,
        follow: Callable[[Any, str], Any] | None = None,
    ) -> Iterator[Results]:
        if source is None:
            raise InputError("source: expected a picture, got None. Could imread() not read it?")
        is_one = isinstance(source, _ONE) or hasattr(source, "size") or hasattr(source, "read")
        if not (is_one or hasattr(source, "__getitem__")):  # enough for Python to iterate
            check_kind("source", source, Iterable, "a picture, a name or several of them")
        detector = self._load(options)
        pictures = _Pictures([source] if is_one else source, options.vid_stride)
        mode = "predict" if follow is None else "track"
        folder = options.run_folder(_task_of(detector), mode) if options.writes else None
        if folder is not None:
            folder.refuse_pictures_here([source] if is_one else source)

        def found() -> Iterator[Results]:
            outcomes = detector.stream(
                pictures,
                on_error="yield",
                expand=False,
                keep_pictures=True,
                **options.of_call(detector.task),
            )
            pairs = zip(outcomes, pictures.items_again(), strict=False)
            with closing(outcomes), ExitStack() as stack:
                if folder is not None:
                    stack.callback(folder.finish)
                for result, item in _without_errors(pairs, is_one=is_one):
                    if options.show and result.frame is not None:
                        raise InputError(_NO_SHOW)
                    if follow is not None:
                        result = follow(result, result.path or item.name)
                    path = None if folder is None else folder.path
                    made = _results_of(result, item, path, keeps=keeps)
                    if folder is not None:
                        folder.write(made, item)
                    if options.show:
                        made.show(**options.drawing)
                    yield made

        return found()

    def _any(self, **options: Any) -> Detector:
        """Return a detector with these options, whatever the others are."""
        return self._detectors.find(options) or self._load(_Options(**options))

    def _load(self, options: _Options) -> Detector:
        """Return the detector for the options of one call."""
        return self._detectors.get(options.of_load(self._device))

    # ------------------------------------------------------------ evaluation and export

    def val(
        self,
        data: str | Path | None = None,
        *,
        conf: float = 0.001,
        iou: float | None = None,
        imgsz: Size | None = None,
        device: str | int | None = None,
        half: bool = False,
        batch: int = 1,
        labels: str | None = None,
        **others: Any,
    ) -> Metrics:
        """Return COCO's average precision on labelled pictures.

        `data` is a folder, a list file, a .json file of COCO, or a .data file, whose `valid` names
        one of these; `labels` is the folder of the
        label files, if they are not where darknet looks for them.
        """
        if data is None:
            raise InputError("data: expected a folder, a list or a .data file of labelled pictures")
        if others.get("plots"):
            raise InputError("plots: val() draws none. Run: engine evaluate … --curves DIR")
        only = {"split": "val", "save_json": False, "augment": False, "rect": True, "plots": False}
        check(YOLO.val, others, where="val()", only=only, unused=("verbose", "workers"))
        from engine.darknet.names import find_file
        from engine.evaluate import coco_files
        from engine.evaluate.examples import Detections, Example
        from engine.evaluate.score import Rules, score
        from engine.outputs import labelled_pictures

        options = _Options(conf=conf, iou=iou, imgsz=imgsz, device=device, half=half, batch=batch)
        detector = self._load(options)
        if detector.task != "detector":
            raise InputError(
                f"val(): expected a detector, got a {detector.task}. "
                "Run: engine classify --list FILE"
            )
        source = str(data)
        if Path(source).suffix.lower() == ".data":
            source = str(find_file(source, "valid"))
        if Path(source).suffix.lower() == ".json":
            truth = coco_files.read_truth(source, detector.labels)
        else:
            truth = labelled_pictures.read(source, detector.labels, labels=labels)
        if truth.has_no_labels:
            raise InputError(f"{source}: no picture has a label file. labels= names their folder")
        examples: list[Example] = []
        broken: list[ImageError] = []
        found = detector.stream(
            (entry.path for entry in truth.entries),
            on_error="yield",
            expand=False,
            threshold=conf,
            nms=iou,
        )
        for entry, result in zip(truth.entries, found, strict=True):
            if isinstance(result, ImageError):
                broken.append(result)
                continue
            detections = Detections.from_result(inside(result))
            objects = entry.objects(result.size)
            examples.append(Example(entry.image_id, result.size, objects, detections, entry.path))
        for each in (*truth.warnings(), *broken):
            _log.warning("%s", each)
        if broken and not examples:
            raise broken[0]
        if broken:
            of = f"{len(broken)} of {len(truth.entries)}"
            _log.warning("%s pictures could not be read and are left out", of)
        return Metrics(score(examples, truth.names, Rules("coco")))

    def export(
        self,
        format: str = "onnx",
        *,
        imgsz: Size | None = None,
        half: bool = False,
        dynamic: bool = False,
        nms: bool = False,
        conf: float | None = None,
        iou: float | None = None,
        max_det: int | None = None,
        opset: int | None = None,
        batch: int | None = None,
        overwrite: bool = False,
        **others: Any,
    ) -> str:
        """Write the network as ONNX next to its weights; return the path.

        The output is that of a YOLOv8 of ultralytics, (batch, 4 + classes, boxes), or with `nms`
        (batch, max_det, 6), or of a classifier (batch, classes). The batch size is 1, or with
        `dynamic` any, like height and width.
        """
        only = {"int8": False, "optimize": False, "keras": False, "data": None}
        unused = ("simplify", "verbose", "device", "workspace")  # the graph is simple already
        check(YOLO.export, others, where="export()", only=only, unused=unused)
        if format != "onnx":
            raise InputError(f"format: expected onnx, got {format!r}.{suggest(format, ['onnx'])}")
        detector = self._any(imgsz=_multiple_of_stride(imgsz))
        path = Path(self._files[1] or detector.graph.file).with_suffix(".onnx")
        detector.export(
            path,
            layout="raw" if detector.task == "other" else "yolov8",
            nms=nms,
            threshold=conf,
            iou=iou,
            max_detections=max_det,
            half=half,
            dynamic=dynamic,
            batch=batch or (None if dynamic else 1),
            opset=opset,
            overwrite=overwrite,
        )
        return str(path)

    def train(self, *_: Any, **__: Any) -> None:
        """Refuse: the engine runs networks and does not train them."""
        raise InputError("train: networks are trained with darknet; the engine runs them")

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Say what to use in place of a method that is not here."""
            hint = f" {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise AttributeError(f"{name}: YOLO of engine.compat.ultralytics has none.{hint}")


def _loaded(files: _Files, name: str, task: str | None, **options: Any) -> Detector:
    """Load a network; refuse one for another task."""
    cfg, weights, names = files
    detector = loading.load(cfg, weights, names, **options)
    if task not in (None, found := _task_of(detector)):
        detector.close()
        raise InputError(f"task: {name} is for {found}, not {task}")
    return detector


def _task_of(detector: Detector) -> str:
    return "classify" if detector.task == "classifier" else "detect"


class _Pictures:
    """The pictures that sources stand for, with arrays turned into RGB; stop() ends cameras.

    A detector reads ahead; items_again() yields the items of what it has read, without the pixels.
    """

    def __init__(self, sources: Iterable[Any], stride: int) -> None:
        self._stopped = Event()
        selection = FrameSelection(whole("vid_stride", stride))
        self._items = items_of(sources, selection, stopped=self._stopped)
        self._read: deque[Item] = deque()

    def __iter__(self) -> Iterator[Any]:
        has_warned = False
        for number, item in enumerate(self._items):
            if item.name.lower().endswith(".gif") and not has_warned:
                what = "%s: only the first frame of a GIF is read. Convert it to a video for others"
                _log.warning(what, shown(item.name))
                has_warned = True
            name = f"image{number}.jpg" if name_of(item.source) is None else item.name
            self._read.append(replace(item, name=name, source=name))
            yield _in_rgb(item.source)

    def items_again(self) -> Iterator[Item]:
        while self._read:
            yield self._read.popleft()

    def stop(self) -> None:
        self._stopped.set()


def _without_errors(
    outcomes: Iterable[tuple[Any, Item]], *, is_one: bool
) -> Iterator[tuple[Any, Item]]:
    """Yield results and log errors; raise the error of a single picture that cannot be read."""
    first: ImageError | None = None
    number = -1
    has_any = False
    for number, (outcome, item) in enumerate(outcomes):
        if first is not None:
            _log.warning("%s", first)
            first = None
        if not isinstance(outcome, ImageError):
            has_any = True
            yield outcome, item
        elif is_one and number == 0:
            first = outcome
        else:
            _log.warning("%s", outcome)
    if first is not None:
        raise first
    if number >= 0 and not has_any:
        _log.warning("source: none of the pictures could be read, so there are no results")


def _results_of(result: Any, item: Item, folder: Path | None, *, keeps: bool) -> Results:
    """Return the Results, in a stream with the pixels only of what cannot be read again.

    The pixels for a network of grey pictures are not those of the file.
    """
    picture = result.picture
    if picture is not None and is_of_file(result.stamp) and is_file(result.path):
        kept = picture if keeps and picture.channels == _RGB else None
        return Results(replace(result, picture=None), kept, folder)
    return Results(result, picture, folder, name=item.name)


# ---------------------------------------------------------------- arguments


class _Options:
    """The arguments of predict(), with ultralytics' defaults; iou is darknet's unless given."""

    def __init__(
        self,
        conf: float = 0.25,
        iou: float | None = None,
        imgsz: Size | None = None,
        device: str | int | None = None,
        half: bool = False,
        classes: Collection[str | int] | int | None = None,
        max_det: int = _MAX_DETECTIONS,
        agnostic_nms: bool = False,
        batch: int = 1,
        vid_stride: int = 1,
        save: bool = False,
        save_txt: bool = False,
        save_conf: bool = False,
        save_crop: bool = False,
        show: bool = False,
        project: str | Path | None = None,
        name: str | None = None,
        line_width: int | None = None,
        exist_ok: bool = False,
        show_labels: bool = True,
        show_conf: bool = True,
        show_boxes: bool = True,
    ) -> None:
        self.conf, self.iou, self.imgsz, self.device, self.half = conf, iou, imgsz, device, half
        self.classes = [classes] if isinstance(classes, int) else classes
        self.max_det, self.agnostic_nms, self.batch = max_det, agnostic_nms, batch
        self.vid_stride, self.show, self.exist_ok = vid_stride, show, exist_ok
        self.save, self.save_txt, self.save_conf, self.save_crop = (
            save,
            save_txt,
            save_conf,
            save_crop,
        )
        self.project, self.name = project, name
        self.drawing = {
            "line_width": line_width,
            "labels": show_labels,
            "conf": show_conf,
            "boxes": show_boxes,
        }

    @property
    def writes(self) -> bool:
        return self.save or self.save_txt or self.save_crop

    def run_folder(self, task: str, mode: str) -> RunFolder:
        return RunFolder(
            Path(self.project or f"runs/{task}") / (self.name or mode),
            save=self.save,
            save_txt=self.save_txt,
            save_conf=self.save_conf,
            save_crop=self.save_crop,
            exist_ok=self.exist_ok,
            drawing=self.drawing,
        )

    def of_load(self, device: str) -> dict[str, Any]:
        """Return what the network must be loaded for."""
        return {
            "device": device if self.device is None else device_name(self.device),
            "imgsz": _multiple_of_stride(self.imgsz),
            "half": self.half,
            "agnostic_nms": self.agnostic_nms,
            "batch": self.batch,
        }

    def of_call(self, task: str) -> dict[str, Any]:
        """Return the options for boxes; classifiers ignore them, as in ultralytics."""
        if task == "classifier":
            return {}
        return {
            "threshold": self.conf,
            "nms": self.iou,
            "classes": self.classes,
            "max_detections": self.max_det,
        }


def _multiple_of_stride(size: Size | None) -> Size | None:
    """Round sides up, and say so, as ultralytics does; what is no size is left to load()."""
    sides: list[Any] = [*size] if isinstance(size, (tuple, list)) else [size]
    if not all(map(is_whole, sides)):
        return size
    rounded: list[Any] = [ceil(each / _STRIDE) * _STRIDE for each in sides]
    if rounded != sides:
        what = "imgsz: expected multiples of %d, got %s: rounded up to %s"
        _log.warning(what, _STRIDE, sides, rounded)
    return tuple(rounded) if len(rounded) > 1 else rounded[0]


def _known(options: dict[str, Any], where: str = "predict()") -> dict[str, Any]:
    """Return the options without those that change nothing; refuse unknown ones."""
    check(_Options, options, where=where, only=_ONLY, unused=("verbose",))
    return {name: each for name, each in options.items() if name not in (*_ONLY, "verbose")}


def _in_rgb(source: Any) -> Any:
    """Turn an array in BGR or BGRA order, ultralytics' order, into RGB or RGBA."""
    if isinstance(source, np.ndarray) and source.ndim == 3 and source.shape[2] in (3, 4):
        return source[:, :, [2, 1, 0, 3][: source.shape[2]]]
    return source


# ---------------------------------------------------------------- files


def _files_of(
    model: Path,
    weights: str | Path | None,
    names: str | Path | Sequence[str] | Mapping[int, str] | None,
) -> _Files:
    """Return .cfg (or a name of the zoo), .weights and names."""
    from engine.models import registry

    suffix = model.suffix.lower()
    if suffix in _FOREIGN:
        raise InputError(
            f"{shown(str(model))}: expected a .cfg or .weights file of darknet, got {suffix}"
        )
    is_file = suffix in (".cfg", ".weights")
    stem = model.stem if is_file else model.name
    cfg = model.with_suffix(".cfg")
    if is_file and cfg.exists():
        found = weights or (model if suffix == ".weights" else model.with_suffix(".weights"))
        if weights or Path(found).exists() or stem not in registry.models():
            return cfg, found, _names_of(model, stem) if names is None else names
    if is_file and not registry.knows(stem):
        raise _missing(model, cfg)
    if suffix == ".weights" and model.exists():
        weights = weights or model
    zoo = registry.find(stem)
    if weights is None:
        return stem, None, names
    return zoo.cfg, weights, zoo.names if names is None else names


def _missing(model: Path, cfg: Path) -> InputError:
    """Return the error for the file of a network without a .cfg."""
    from engine.models import registry

    if model.exists():
        return InputError(
            f"{shown(str(cfg))}: is missing: expected next to {shown(str(model))}. "
            "Pass the .cfg to YOLO(), and weights="
        )
    return InputError(f"{shown(str(model))}: no such file.{suggest(model.stem, registry.models())}")


def _names_of(model: Path, stem: str) -> Path | None:
    """Return the names of the network of the zoo, unless there is a file with the same name."""
    from engine.darknet.names import names_of
    from engine.models import registry

    if names_of(model):  # which load() finds
        return None
    return registry.find(stem).names if stem in registry.models() else None
