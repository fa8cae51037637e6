"""The options of a call: ultralytics' names and defaults, converted to the engine's."""

from __future__ import annotations

import logging
from collections.abc import Collection
from math import ceil
from pathlib import Path
from typing import Any

from engine.arguments import is_whole
from engine.compat.ultralytics.device import device_of
from engine.compat.ultralytics.keywords import check
from engine.compat.ultralytics.run_folder import RunFolder
from engine.loading import Size

_log = logging.getLogger("engine")

# Options with only one supported value.
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
_STRIDE = 32  # ultralytics rounds sides up to a multiple of this
_MAX_DETECTIONS = 300  # ultralytics' default


class Options:
    """The arguments of predict(), with ultralytics' defaults; iou is darknet's unless given."""

    def __init__(
        self,
        conf: float = 0.25,
        iou: float | None = None,
        imgsz: Size | None = None,
        device: Any = None,
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
        """Return the options of engine.load()."""
        return {
            "device": device_of(self.device) or device,
            "imgsz": multiple_of_stride(self.imgsz),
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


def multiple_of_stride(size: Size | None) -> Size | None:
    """Round sides up and log it, as ultralytics does; load() refuses invalid sizes."""
    sides: list[Any] = [*size] if isinstance(size, (tuple, list)) else [size]
    if not all(map(is_whole, sides)):
        return size
    rounded: list[Any] = [ceil(each / _STRIDE) * _STRIDE for each in sides]
    if rounded != sides:
        what = "imgsz: expected multiples of %d, got %s: rounded up to %s"
        _log.warning(what, _STRIDE, sides, rounded)
    return tuple(rounded) if len(rounded) > 1 else rounded[0]


def known(options: dict[str, Any], where: str = "predict()") -> dict[str, Any]:
    """Return the options without those that change nothing; refuse unknown ones."""
    check(Options, options, where=where, only=_ONLY, unused=("verbose",))
    return {name: each for name, each in options.items() if name not in (*_ONLY, "verbose")}
