"""`detector valid`: write all boxes of the `valid` pictures for the tools of VOC, COCO or ImageNet.

The `eval` option of the .data file chooses: voc writes results/comp4_det_test_CLASS.txt, coco
results/coco_results.json, imagenet results/imagenet-detection.txt. -out replaces the name or, for
voc, its beginning, and `results` the folder.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.cli import FAILED
from engine.cli._darknet import files, network
from engine.cli._darknet.files import Files
from engine.cli._darknet.growing_files import GrowingFiles
from engine.cli._stderr import print_stderr
from engine.errors import ConfigError, ImageError, InputError, suggest
from engine.files.naming import folder_name_of, shown

if TYPE_CHECKING:
    from engine.vision.boxes import Suppression

_THRESHOLD, _NMS = 0.001, 0.6  # darknet's
_AT_ONCE = 4  # pictures that darknet reads at a time; it counts them on stderr


class Box(NamedTuple):
    """A box with one of its classes; edges are in pixels, clipped to the picture."""

    class_id: int
    score: float
    left: float
    top: float
    right: float
    bottom: float


class Style(NamedTuple):
    """A format of the results; `line` receives the number and the path of the picture."""

    default: str  # used without -out
    line: Callable[[int, str, Box], str]
    origin: int = 0  # the coordinate of the first pixel
    begin: str = ""
    end: str = ""
    separator: str = ""  # between lines


def run(
    arguments: argparse.Namespace,
    model: Files,
    *,
    options: dict[str, str],
    paths: Sequence[str],
    names: str | Path | None = None,
    nms: float = _NMS,
) -> int:
    """Run the pictures and return the exit status; `options` are those of the .data file."""
    style = _style(options)
    folder = Path(options.get("results", "results"))
    failures, start = 0, time.time()
    with network.load(arguments, model, names=names) as detector:
        targets = _targets(folder, arguments.out or style.default, style, detector.labels)
        inputs = [*files.read_by(model, names, "valid"), *paths]
        print(*network.heading(detector, model), sep="\n")
        print(*network.detection_layers(detector), sep="\n", flush=True)
        step = min(_AT_ONCE, len(paths))
        suppression = network.suppression(detector, arguments.nms, usual=nms)
        with GrowingFiles(set(targets), style.begin, style.separator, style.end, inputs) as out:
            pictures = enumerate(network.read_all(detector, paths), start=1)
            for number, (path, taken) in pictures:
                if number % step == 1 % step:
                    print_stderr(str(number - 1 + step))
                if isinstance(taken, ImageError):
                    print_stderr(f"Error: {taken}")
                    failures += 1
                    continue
                found = network.candidates(detector, taken, threshold=_THRESHOLD)
                if found.error:
                    print_stderr(f"Error: {found.error}")
                    failures += 1
                for box in _boxes(found, style, suppression):
                    out.add(targets[box.class_id], style.line(number, path, box))
    print_stderr(f"Total Detection Time: {int(time.time() - start):f} Seconds")
    return FAILED if failures else 0


def _style(options: dict[str, str]) -> Style:
    kind = options.get("eval", "voc")
    if kind not in STYLES:
        known = ", ".join(STYLES)
        raise InputError(f"eval: expected {known}, got {kind!r}.{suggest(kind, STYLES)}")
    if "map" in options:
        raise InputError("map: renumbered classes are not supported. Remove it from the .data file")
    return STYLES[kind]


def _targets(folder: Path, name: str, style: Style, labels: Sequence[str]) -> list[Path]:
    """Return the file of each class."""
    if style is STYLES["voc"]:
        files = [folder / f"{name}{folder_name_of(label)}.txt" for label in labels]
        if twice := [path for path, count in Counter(files).items() if count > 1]:
            raise InputError(f"{shown(str(twice[0]))}: would hold the boxes of two classes")
        return files
    if style is STYLES["coco"] and len(labels) > len(_categories()):
        raise ConfigError(f"eval=coco: expected at most 80 classes, got {len(labels)}")
    ending = ".json" if style is STYLES["coco"] else ".txt"
    return [folder / f"{name}{ending}"] * len(labels)


def _boxes(found: network.Found, style: Style, suppression: Suppression) -> Iterator[Box]:
    """Yield the boxes of a picture in darknet's order, with darknet's rounding."""
    import numpy as np

    from engine.vision.rows import boxes_of, suppress_rows

    size = np.array(found.picture.size, np.float32)
    rows = found.rows.copy()
    rows[:, :4] *= np.tile(size, 2)  # before NMS, which may depend on distances
    boxes = boxes_of(suppress_rows(rows, suppression))
    xywh = boxes.xywh
    centre, half = xywh[:, :2].astype(np.float64) + style.origin, xywh[:, 2:] / 2.0
    low = np.maximum((centre - half).astype(np.float32), np.float32(style.origin))
    high = np.minimum((centre + half).astype(np.float32), size)
    edges = np.concatenate([low, high], axis=1).tolist()
    for class_id, score, box in zip(
        boxes.class_ids.tolist(), boxes.scores.tolist(), edges, strict=True
    ):
        yield Box(class_id, score, *box)


# ---------------------------------------------------------------- styles


def _voc(number: int, path: str, box: Box) -> str:
    return f"{_id(path)} {box.score:f} {_edges(box, ' ')}\n"


def _imagenet(number: int, path: str, box: Box) -> str:
    return f"{number} {box.class_id + 1} {box.score:f} {_edges(box, ' ')}\n"


def _coco(number: int, path: str, box: Box) -> str:
    from engine.vision.serialize import trailing_number

    digits = re.match("[0-9]+", _id(path))
    image_id = int(digits[0]) if digits else trailing_number(path) or 0
    sides = f"{box.right - box.left:f}, {box.bottom - box.top:f}"
    return (
        f'{{"image_id":{image_id}, "category_id":{_categories()[box.class_id]},'
        f' "bbox":[{box.left:f}, {box.top:f}, {sides}], "score":{box.score:f}}}'
    )


STYLES = {
    "voc": Style("comp4_det_test_", _voc, origin=1),
    "coco": Style("coco_results", _coco, begin="[\n", end="\n]\n", separator=",\n"),
    "imagenet": Style("imagenet-detection", _imagenet),
}


def _categories() -> tuple[int, ...]:
    from engine.vision.serialize import COCO_CATEGORIES

    return COCO_CATEGORIES


def _id(path: str) -> str:
    """Return the name of a picture up to its first dot."""
    return shown(Path(path).name.partition(".")[0])


def _edges(box: Box, separator: str) -> str:
    return separator.join(f"{each:f}" for each in box[2:])
