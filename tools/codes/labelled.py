"""Read pictures with labels: of darknet, of BarBeR and of BoofCV's benchmark of QR codes.

darknet  next to each picture a text file: class and relative x, y, width, height in each line
barber   JSON files of the VGG Image Annotator; pictures are found by their names
boofcv   next to each picture a text file with corners: eight numbers a line after the line SETS,
         else two numbers a line, four lines a code
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from photograph import NAMES, Photograph, PictureError, Target, find_pictures
from PIL import Image

Corners = Sequence[tuple[float, float]]
Label = tuple[int, Corners]  # the kind, by its place in NAMES, and the corners in pixels

_TWO_DIMENSIONAL = {"QR": "qr", "DATAMATRIX": "datamatrix", "AZTEC": "aztec", "PDF417": "pdf417"}
_UNKNOWN = "2D"  # of BarBeR: the kind was not noted


def photographs(kind: str, folder: Path, *, first: int = 0, step: int = 1) -> Iterator[Photograph]:
    """Yield every `step`-th labelled picture of a folder with its codes."""
    labels_of = READERS[kind](folder)
    known = [path for path in find_pictures([folder]) if path in labels_of]
    for path in known[first::step]:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        height, width = pixels.shape[:2]
        labels = labels_of[path]((width, height))
        yield Photograph(pixels, tuple(_target(*label, (width, height)) for label in labels))


def _target(kind: int, corners: Corners, size: tuple[int, int]) -> Target:
    x, y = zip(*corners, strict=True)
    box = (min(x), min(y), max(x), max(y))
    return Target(kind, box, max(box[2] - box[0], box[3] - box[1]) / max(size))


# ---------------------------------------------------------------- formats

Labels = dict[Path, Callable[[tuple[int, int]], list[Label]]]  # by picture; given its size


def _darknet(folder: Path) -> Labels:
    return {path: lambda size, path=path: _relative(path, size) for path in find_pictures([folder])}


def _relative(path: Path, size: tuple[int, int]) -> list[Label]:
    file, (width, height) = path.with_suffix(".txt"), size
    labels = []
    lines = file.read_text().splitlines() if file.exists() else []
    for number, words in enumerate(map(str.split, lines), start=1):
        if not words:
            continue
        kind, x, y, across, down = _numbers(words, f"{file}:{number}")
        left, top = (x - across / 2) * width, (y - down / 2) * height
        corners = [(left, top), (left + across * width, top + down * height)]
        labels.append((int(kind), corners))
    return labels


def _numbers(words: Sequence[str], where: str) -> list[float]:
    """Parse the class and the box of a line."""
    try:
        numbers = [float(part) for part in words[:5]]
    except ValueError:
        numbers = []
    if len(numbers) < 5 or not np.isfinite(numbers).all():
        raise PictureError(f"{where}: expected a class and x, y, width, height")
    if numbers[0] not in range(len(NAMES)):
        classes = f"0 to {len(NAMES) - 1}: {', '.join(NAMES)}"
        raise PictureError(f"{where}: class: expected {classes}; got {words[0]}")
    return numbers


def _barber(folder: Path) -> Labels:
    by_name = {path.name: path for path in find_pictures([folder])}
    found: Labels = {}
    for file in sorted(folder.rglob("*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        for entry in document.get("_via_img_metadata", {}).values():
            path = by_name.get(entry["filename"])
            types = {region["region_attributes"].get("Type") for region in entry["regions"]}
            if path and path not in found and _UNKNOWN not in types:
                labels = [_region(region) for region in entry["regions"]]
                found[path] = lambda _, labels=labels: labels
    return found


def _region(region: dict[str, Any]) -> Label:
    shape, attributes = region["shape_attributes"], region["region_attributes"]
    kind = NAMES.index(_TWO_DIMENSIONAL.get(attributes["Type"], "barcode"))
    if shape["name"] == "rect":
        left, top = shape["x"], shape["y"]
        return kind, [(left, top), (left + shape["width"], top + shape["height"])]
    return kind, list(zip(shape["all_points_x"], shape["all_points_y"], strict=True))


def _boofcv(folder: Path) -> Labels:
    pictures = [path for path in find_pictures([folder]) if path.with_suffix(".txt").exists()]
    return {path: lambda _, path=path: _corners(path.with_suffix(".txt")) for path in pictures}


def _corners(file: Path) -> list[Label]:
    lines = [line.strip() for line in file.read_text().splitlines()]
    numbers = [
        float(part)
        for line in lines
        if line and not line.startswith("#") and line != "SETS"
        for part in line.split()
    ]
    if len(numbers) % 8:
        raise PictureError(
            f"{file}: expected four corners of each code, got {len(numbers)} numbers"
        )
    codes = np.reshape(numbers, (-1, 4, 2)).tolist()
    return [(NAMES.index("qr"), [(x, y) for x, y in code]) for code in codes]


READERS: dict[str, Callable[[Path], Labels]] = {
    "darknet": _darknet,
    "barber": _barber,
    "boofcv": _boofcv,
}


def by_dimension(kinds: Iterable[float]) -> list[int]:
    """Return 0 for each linear code and 1 for each code of two dimensions, as BarBeR does."""
    return [int(kind != NAMES.index("barcode")) for kind in kinds]
