"""Read YOLO's label files: a line "class x y width height" per object, relative to the picture.

A segmentation line, "class x y x y x y …", stands for the box around its corners.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from engine.errors import InputError
from engine.evaluate.examples import Objects
from engine.evaluate.text_files import read_text
from engine.files.naming import shown

_BEYOND = 0.5  # how far corners may lie outside; 2 would be the flag of a visible keypoint


def read(path: Path, size: tuple[int, int], names: Sequence[str], problems: list[str]) -> Objects:
    """Read the objects of a label file; invalid lines are skipped and reported in `problems`."""
    boxes, class_ids = [], []
    width, height = size
    for class_id, (x, y, w, h) in read_lines(path, len(names), problems):
        boxes.append(((x - w / 2) * width, (y - h / 2) * height, w * width, h * height))
        class_ids.append(class_id)
    return Objects.of(boxes, class_ids)


def read_lines(path: Path, classes: int, problems: list[str]) -> list[tuple[int, list[float]]]:
    """Read class, x, y, width and height of each object, relative to the picture."""
    found = []
    name = shown(str(path))
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(_parse(line.split(), classes))
        except InputError as error:
            problems.append(f"{name}:{number}: {error}")
    return found


def _parse(words: list[str], classes: int) -> tuple[int, list[float]]:
    is_polygon = len(words) >= 7 and len(words) % 2 == 1
    if len(words) != 5 and not is_polygon:
        hint = ". Write labels without --save-conf" if len(words) == 6 else ""
        raise InputError(f"expected class x y width height, got {len(words)} columns{hint}")
    class_id = _class_id(words[0], classes)
    try:
        values = [float(word) for word in words[1:]]
    except ValueError:
        raise InputError(f"expected class x y width height, got {_cut(' '.join(words))}") from None
    x, y, width, height = box = _box_around(values) if is_polygon else values
    if not all(map(math.isfinite, box)):
        raise InputError(f"box: expected finite numbers, got {_cut(' '.join(words[1:]))}")
    if width <= 0 or height <= 0:
        raise InputError(f"box: has no area: width {width:g}, height {height:g}")
    if max(box) > 2:
        raise InputError(
            f"box: expected values relative to the picture, 0 to 1, got {max(box):g}. Pixels?"
        )
    if not (abs(x - 0.5) < 0.5 + width / 2 and abs(y - 0.5) < 0.5 + height / 2):
        raise InputError(f"box: lies outside the picture: x {x:g}, y {y:g}")
    return class_id, box


def _box_around(corners: Sequence[float]) -> list[float]:
    """Return centre and size of the box around x y x y …"""
    if not all(map(math.isfinite, corners)):
        return [math.nan] * 4
    for value in corners:
        if not -_BEYOND <= value <= 1 + _BEYOND:
            raise InputError(f"polygon: expected values from 0 to 1, got {value:g}. Keypoints?")
    across, down = corners[::2], corners[1::2]
    left, right, top, bottom = min(across), max(across), min(down), max(down)
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def _class_id(word: str, classes: int) -> int:
    whole, point, zeros = word.partition(".")
    if whole and point and not zeros.strip("0"):
        word = whole  # numpy.savetxt and data frames write 58.0 for 58
    if not (word.isascii() and word.isdigit()):
        raise InputError(f"class: expected its number, got {_cut(word)}")
    class_id = int(word) if len(word) < 10 else classes
    if class_id >= classes:
        raise InputError(f"class: expected 0 to {classes - 1}, got {word[:20]}")
    return class_id


def _cut(text: str) -> str:
    return ascii(text[:40])
