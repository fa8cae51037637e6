"""A network as darknet's commands run it: one picture at a time, resized as darknet does."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli._darknet.files import Files
from engine.errors import DeviceError, ImageError, InputError
from engine.files.naming import escaped, shown

if TYPE_CHECKING:
    from engine.arrays import Array
    from engine.detector import Detector
    from engine.vision.boxes import Suppression
    from engine.vision.image import Picture, Source
    from engine.vision.resize import Placement

NMS = 0.45  # darknet's constant
_CPU, _FIRST_GPU = -1, 0
_LAYER_TYPES = {"region": 27, "yolo": 28, "Gaussian_yolo": 29}  # darknet's numbers
_NMS_NUMBERS = {"default": 0, "greedynms": 1, "diounms": 2, "cornersnms": 3}


@dataclass(frozen=True, eq=False)
class Found:
    """The candidate rows of a picture, relative to it and in darknet's order."""

    picture: Picture
    rows: Array
    milliseconds: float
    error: ImageError | None = None  # if set, there are no rows


@dataclass(frozen=True, eq=False)
class Input:
    """A picture resized to the network's input."""

    picture: Picture
    pixels: Array
    placement: Placement


def load(
    arguments: argparse.Namespace,
    files: Files,
    *,
    names: str | Path | Sequence[str] | None = None,
    task: str = "detector",
) -> Detector:
    """Load the network on the device that -i and -nogpu name; without a GPU, the first is the CPU.

    Results match darknet's: EXIF orientation is ignored, and resizing rounds as in darknet.
    """
    import engine

    number = _CPU if arguments.nogpu else arguments.i
    device = "auto" if number in (None, _FIRST_GPU) else "cpu" if number < 0 else f"cuda:{number}"
    data = (files.data or None) if names is None else None
    # only for validation: each command passes its own values later
    given = {"threshold": arguments.thresh, "hierarchy": arguments.hier, "nms": arguments.nms}
    try:
        detector = engine.load(
            *(files.cfg, files.weights, names),
            data=data,
            device=device,
            orient=False,
            resize="exact",
            **{name: value for name, value in given.items() if value is not None},
        )
    except DeviceError as error:
        raise DeviceError(str(error).replace("--device cpu", "-nogpu")) from None
    if detector.task != task:
        detector.close()
        other = "classifier predict" if task == "detector" else "detector test"
        raise InputError(f"{shown(files.cfg)}: is not a {task}. Try: {other}")
    return detector


def heading(
    detector: Detector, files: Files, *, has_time: bool = False, trains: bool = False
) -> Iterator[str]:
    """Yield the lines that darknet prints after reading a network.

    Darknet's detector commands set batch and time steps to 1. `has_time` keeps the time steps of
    the .cfg; `trains` is for commands that read the network as for training.
    """
    from engine.darknet import cfg, weights

    if detector.device.startswith("cpu"):
        yield " GPU isn't used "
    net, *_, last = cfg.read(files.cfg)
    options = {key: option.value for key, option in net.first.items()}
    parts = _whole(options, "subdivisions")
    steps = _whole(options, "time_steps") if has_time or trains else 1
    batch = _whole(options, "batch") // parts * steps if trains else 1
    sizes = f"mini_batch = {batch}, batch = {batch * parts}, time_steps = {steps}"
    yield f"{sizes}, train = {int(trains)} "
    for layer in (node.layer for node in detector.graph.detections):
        kind = getattr(layer, "nms_kind", "default")
        if kind != "default":
            number, beta = _NMS_NUMBERS.get(kind, 0), getattr(layer, "beta_nms", 0.6)
            yield f"nms_kind: {escaped(kind)} ({number}), beta = {beta:f} "
    width, height = detector.size
    if (width % 32 or height % 32) and last.name in ("yolo", "region", "detection"):
        sides = f"width={width} and height={height} in cfg-file must be divisible by 32"
        yield f"\n Warning: {sides} for default networks Yolo v1/v2/v3!!! \n"
    header = weights.read_header(files.weights)
    bits = "64" if header.size > 16 else "32"
    kilo, batches = header.seen // 1000, header.seen // 64000
    yield ""
    yield f" seen {bits}, trained: {kilo} K-images ({batches} Kilo-batches_64) "


def _whole(options: dict[str, str], key: str) -> int:
    """Return an integer option of [net] that only training uses and that was not validated."""
    digits = re.match("[0-9]{1,9}", options.get(key, "1"))
    return max(int(digits[0]), 1) if digits else 1


def detection_layers(detector: Detector) -> Iterator[str]:
    for node in detector.graph.detections:
        if node.kind in _LAYER_TYPES:
            yield f" Detection layer: {node.index} - type = {_LAYER_TYPES[node.kind]} "


def suppression(detector: Detector, threshold: float | None, *, usual: float = NMS) -> Suppression:
    """Return the .cfg's kind of NMS with darknet's threshold or -nms; 0 switches it off."""
    chosen = usual if threshold is None else threshold
    return replace(detector.suppression, threshold=chosen or None)


def read(detector: Detector, source: Source, *, has_letterbox: bool = False) -> Input:
    """Read and resize a picture, or raise ImageError."""
    from engine.vision import image, resize

    picture = image.read(source, channels=detector.graph.net.channels, orient=False)
    fit = resize.letterbox if has_letterbox or detector.graph.letter_box else resize.stretch
    return Input(picture, *fit(picture, detector.size, exact=True))


def candidates(
    detector: Detector, taken: Input, *, threshold: float, hierarchy: float = 0.5
) -> Found:
    """Run the network; return the rows before NMS, relative to the picture.

    If a score is not finite, the result has an error and no rows; darknet reports nothing then.
    """
    from engine.vision.postprocess import is_representable, or_error, relative_to_picture

    start = time.perf_counter()
    (rows,) = detector.candidates(taken.pixels[None], threshold=threshold, hierarchy=hierarchy)
    milliseconds = (time.perf_counter() - start) * 1e3
    rows, error = or_error(rows, taken.picture.name)
    rows = rows[is_representable(rows)]
    return Found(taken.picture, relative_to_picture(rows, taken.placement), milliseconds, error)


def read_all(detector: Detector, paths: Sequence[str]) -> Iterator[tuple[str, Input | ImageError]]:
    """Read pictures ahead of the network; yield an error in place of an unreadable one."""
    from engine.concurrency.pipeline import pipelined

    def read_one(path: str) -> tuple[str, Input | ImageError]:
        try:
            return path, read(detector, path)
        except ImageError as error:
            return path, error

    return pipelined(iter(paths), read_one, workers=2)
