"""`detector calc_anchors`: anchors for the boxes of the `train` pictures."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from engine.cli._darknet import files
from engine.cli._darknet.labels import labels_of
from engine.cli._output_files import ReservedPaths
from engine.errors import InputError
from engine.files.naming import shown

_ANCHORS, _COUNTERS = "anchors.txt", "counters_per_class.txt"
_MAX_CLASSES = 100_000
_LARGE = 32  # up to this width, anchors are in cells, with decimals


def run(arguments: argparse.Namespace, data: str) -> int:
    """Print the anchors, and write anchors.txt and counters_per_class.txt as darknet does."""
    import numpy as np

    from engine.darknet.anchor_clusters import find_anchors
    from engine.darknet.names import read_data

    clusters = 5 if arguments.num_of_clusters is None else arguments.num_of_clusters
    width, height = arguments.width, arguments.height
    if not (width and height and width > 0 and height > 0):
        raise InputError("detector calc_anchors: expected -width and -height of the network")
    print(f"\n num_of_clusters = {clusters}, width = {width}, height = {height} ")
    paths = files.listed(data, "train")
    print(f" read labels from {len(paths)} images ")
    boxes, classes, last = [], [], 0
    for number, path in enumerate(paths, start=1):
        for class_id, box in labels_of(path, _MAX_CLASSES):
            boxes.append(box[2:])
            classes.append(class_id)
            last = number
    if not boxes:
        raise InputError(f"{shown(data)}: train: no picture has a label file with a box")
    print(f"\r loaded \t image: {last} \t box: {len(boxes)}\n all loaded. ")
    print("\n calculating k-means++ ...")
    sides = np.array(boxes, np.float32) * np.array([width, height], np.float32)
    found = find_anchors(sides, clusters)
    counts = np.bincount(classes, minlength=_classes(read_data(data))).tolist()
    anchors = ", ".join(_pair(each, width) for each in found.anchors.tolist())
    counters = f"counters_per_class = {', '.join(map(str, counts))}"
    print(f"\n iterations = {found.iterations} \n\n\n{counters}")
    print(f"\n avg IoU = {found.average_iou * 100:2.2f} % ")
    _replace(_COUNTERS, counters, [data, *paths])
    _replace(_ANCHORS, anchors, [data, *paths])
    print(f"\nSaving anchors to the file: {_ANCHORS} \nanchors = {anchors}")
    return 0


def _classes(options: dict[str, str]) -> int:
    text = options.get("classes", "1")
    return int(text) if text.isdecimal() and int(text) <= _MAX_CLASSES else 1


def _pair(anchor: list[float], width: int) -> str:
    digits = "3.0f" if width > _LARGE else "2.4f"
    return ",".join(f"{each:{digits}}" for each in anchor)


def _replace(name: str, text: str, inputs: list[str]) -> None:
    """Write a file; replace one only if darknet or the engine may have written it."""
    path = Path(name)
    if path.is_file() and not re.fullmatch(
        rb"(counters_per_class = )?[\d., \n]*", path.read_bytes()
    ):
        raise InputError(f"{name}: exists already, and is not a list of numbers. Rename it")
    files.write(path, text.encode(), ReservedPaths(inputs), option="output")
