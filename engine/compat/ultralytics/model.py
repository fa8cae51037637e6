"""YOLO: load a darknet network, predict, evaluate and export with ultralytics' arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from engine import loading
from engine.backends.base import PrecisionError
from engine.compat.ultralytics import callbacks
from engine.compat.ultralytics.detectors import Detectors
from engine.compat.ultralytics.device import DeviceName, device_of
from engine.compat.ultralytics.evaluation import evaluate
from engine.compat.ultralytics.following import Following, check_tracker
from engine.compat.ultralytics.keywords import check
from engine.compat.ultralytics.metrics import Metrics
from engine.compat.ultralytics.network_files import Files, files_of
from engine.compat.ultralytics.options import Options, known, multiple_of_stride
from engine.compat.ultralytics.predictor import Predictor
from engine.compat.ultralytics.results import ClassNames, Results, in_order
from engine.compat.ultralytics.sources import Sources
from engine.darknet.graph import named_task
from engine.detector import Detector
from engine.errors import InputError, suggest
from engine.loading import Size

_log = logging.getLogger("engine")

_NO_PREDICTOR = "expected None: other ways to predict are not here. Use engine.load(…)"
_NO_OPTIONS = ("model", "task")  # keys of `overrides` that say what is loaded
_TRACK_CONF = 0.1  # low-scoring boxes continue tracks
_INSTEAD = {
    "tune": "Networks are trained with darknet",
    "benchmark": "Use: python -m engine benchmark",
    "embed": "Use engine.load(…).layer_outputs()",
    "load": "Pass the weights: YOLO(cfg, weights=…)",
    "save": "A network is its .cfg and its .weights file",
    "half": "Use predict(…, half=True)",
    "parameters": "Use info()",
}


class YOLO:
    """A network, loaded on first use, and again for another device, size or precision.

    Calls are independent: options that are not given take the network's values. The detectors of
    the latest calls are kept, so that calls and streams of several sizes may alternate, on any
    threads.
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
        self._files = files_of(Path(model), weights, names)
        self._task = task
        self.overrides: dict[str, Any] = {"model": self.model_name}
        if task is not None:
            self.overrides["task"] = task
        self.callbacks = callbacks.none()
        self._names: dict[int, str] | None = None  # None until they are read or set
        self._begin()

    def _begin(self) -> None:
        # not a method: a reference cycle would leave a dropped network to the garbage collector
        self._detectors = Detectors(partial(_loaded, self._files, self.model_name, self._task))
        self.predictor: Predictor | None = None  # the latest call
        self._following: Following | None = None  # the latest track()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or pickle, without what _begin() recreates."""
        own = ("_detectors", "predictor", "_following")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"<YOLO: {self.model_name}>"

    @property
    def names(self) -> dict[int, str]:
        """Return the class names by number; a program may change or replace them."""
        if self._names is None:
            self._names = dict(enumerate(self._any().labels))
        return self._names

    @names.setter
    def names(self, names: ClassNames) -> None:
        self._names = dict(enumerate(in_order(names)))

    @property
    def model(self) -> YOLO:
        """Return this network, because programs read model.model.names."""
        return self

    @property
    def task(self) -> str:
        """Return detect or classify."""
        return _task_of(self._any())

    @property
    def device(self) -> DeviceName:
        return DeviceName(self._any(device=self._device).device)

    @property
    def _device(self) -> str:
        return device_of(self.overrides.get("device")) or "auto"

    def to(self, device: Any) -> YOLO:
        """Run on another device from now on; raise an error at once if it is missing."""
        device = device_of(device) or self._device
        if device != self._device:
            self._detectors.forget()
        if device != "cpu":
            self._load(Options(device=device))
        self.overrides["device"] = device
        return self

    def cpu(self) -> YOLO:
        return self.to("cpu")

    def cuda(self, device: Any = None) -> YOLO:
        return self.to("cuda" if device is None else device)

    def eval(self) -> YOLO:
        """Do nothing: networks are never trained here."""
        return self

    def fuse(self, verbose: bool = True, imgsz: Size | None = None) -> YOLO:
        """Do nothing: batch normalisation is always folded into the weights."""
        return self

    def info(
        self, detailed: bool = False, verbose: bool = True, imgsz: Size | None = None
    ) -> tuple[int, int, int, float]:
        """Return and log layers, parameters, gradients (0), and billions of operations."""
        graph = self._any(imgsz=multiple_of_stride(imgsz)).graph
        facts = (len(graph.nodes), graph.parameter_count, 0, graph.operations / 1e9)
        if verbose:
            what = "%s: %d layers, %d parameters, %d gradients, %.1f GFLOPs"
            _log.info(what, self.model_name, *facts)
        return facts

    def close(self) -> None:
        """Release the device, which ends streams; the next call loads the network again."""
        self._detectors.close()

    # ------------------------------------------------------------ callbacks

    def add_callback(self, event: str, func: Callable[[Any], object]) -> None:
        """Call a function at an event of each prediction, passing the Predictor of that call."""
        callbacks.check_function(func)
        self.callbacks[callbacks.event_of(event)].append(func)

    def clear_callback(self, event: str) -> None:
        """Remove all functions of this event."""
        self.callbacks[callbacks.event_of(event)] = []

    def reset_callbacks(self) -> None:
        """Remove all functions of all events."""
        self.callbacks = callbacks.none()

    # ------------------------------------------------------------ prediction

    @overload
    def predict(
        self,
        source: Sources | None = None,
        stream: Literal[False] = False,
        predictor: None = None,
        **options: Any,
    ) -> list[Results]: ...

    @overload
    def predict(
        self, source: Sources | None, stream: Literal[True], predictor: None = None, **options: Any
    ) -> Iterator[Results]: ...

    @overload
    def predict(
        self, source: Sources | None = None, *, stream: Literal[True], **options: Any
    ) -> Iterator[Results]: ...

    def predict(
        self, source: Any = None, stream: bool = False, predictor: None = None, **options: Any
    ) -> Any:
        """Return the Results of every picture in a list, or with `stream` one after another.

        Options: conf, iou, imgsz, device, half, classes, max_det, agnostic_nms, batch, vid_stride,
        save, save_txt, save_conf, save_crop, show, project, name, exist_ok, line_width,
        show_labels, show_conf, show_boxes. Arrays are in BGR order.
        A picture that cannot be read is logged and skipped; a single one raises its error.
        """
        if predictor is not None:
            raise InputError(f"predictor: {_NO_PREDICTOR}")
        found = self._predict(source, self._options(options), keeps=not stream)
        return found if stream else list(found)

    __call__ = predict

    @overload
    def track(
        self,
        source: Sources | None = None,
        stream: Literal[False] = False,
        persist: bool = False,
        *,
        tracker: str | None = None,
        **options: Any,
    ) -> list[Results]: ...

    @overload
    def track(
        self,
        source: Sources | None,
        stream: Literal[True],
        persist: bool = False,
        *,
        tracker: str | None = None,
        **options: Any,
    ) -> Iterator[Results]: ...

    @overload
    def track(
        self, source: Sources | None = None, *, stream: Literal[True], **options: Any
    ) -> Iterator[Results]: ...

    def track(
        self,
        source: Any = None,
        stream: bool = False,
        persist: bool = False,
        *,
        tracker: str | None = None,
        **options: Any,
    ) -> Any:
        """Do what predict() does, with tracking: `boxes.id` identifies objects across frames.

        Tracking restarts with each video and each call, unless `persist`, which is for a loop that
        passes single frames. `conf` is 0.1, since low-scoring boxes continue tracks. A picture in
        which nothing is tracked has None as its `boxes.id`.
        """
        check_tracker(tracker)
        given = self._options(options, "track()")
        if self._load(given).task != "detector":
            raise InputError(f"track(): expected a detector, got {named_task(self.task)}")
        if self._following is None or self.predictor is None or not persist:
            self._following = Following()
        follow = partial(self._following.follow, persist=persist)
        found = self._predict(source, given, keeps=not stream, follow=follow)
        return found if stream else list(found)

    def _predict(
        self,
        source: Any,
        options: Options,
        *,
        keeps: bool,
        follow: Callable[[Any, str], Any] | None = None,
    ) -> Iterator[Results]:
        detector = self._load(options)
        self.predictor = Predictor(options, self.callbacks, self._following)
        task = _task_of(detector)
        return self.predictor.predict(
            *(detector, source), task=task, keeps=keeps, follow=follow, names=self._names
        )

    def _options(self, given: dict[str, Any], where: str = "predict()") -> Options:
        """Return the options of a call; those that are not given come from `overrides`."""
        named = {name: each for name, each in self.overrides.items() if name not in _NO_OPTIONS}
        named |= given
        for name in ("conf", "batch"):
            if named.get(name) is None:
                named.pop(name, None)
        if where == "track()":
            named.setdefault("conf", _TRACK_CONF)
        return Options(**known(named, where))

    def _any(self, **options: Any) -> Detector:
        """Return a detector with these options, whatever the others are."""
        return self._detectors.find(options) or self._load(Options(**options))

    def _load(self, options: Options) -> Detector:
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
        device: Any = None,
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
        options = Options(conf=conf, iou=iou, imgsz=imgsz, device=device, half=half, batch=batch)
        return evaluate(self._load(options), str(data), conf=conf, iou=iou, labels=labels)

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
        unused = ("simplify", "verbose", "device", "workspace")  # the graph needs no simplifying
        check(YOLO.export, others, where="export()", only=only, unused=unused)
        if format != "onnx":
            raise InputError(f"format: expected onnx, got {format!r}.{suggest(format, ['onnx'])}")
        detector = self._any(imgsz=multiple_of_stride(imgsz))
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
        """Raise an error: the engine runs networks and does not train them."""
        raise InputError("train: networks are trained with darknet; the engine runs them")

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raise an error that says what to use in place of a missing method."""
            hint = f" {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise AttributeError(
                f"{name}: YOLO of engine.compat.ultralytics has no such attribute.{hint}"
            )


def _loaded(files: Files, name: str, task: str | None, **options: Any) -> Detector:
    """Load a network; refuse one for another task."""
    cfg, weights, names = files
    try:
        detector = loading.load(cfg, weights, names, **options)
    except PrecisionError:
        detector = loading.load(cfg, weights, names, **{**options, "half": False})
        _log.warning("half: %s has no float16, so the network runs in float32", detector.device)
    if task not in (None, found := _task_of(detector)):
        detector.close()
        raise InputError(f"task: {name} is for {found}, not {task}")
    return detector


def _task_of(detector: Detector) -> str:
    return "classify" if detector.task == "classifier" else "detect"
