"""Results as text: our JSON, darknet's, COCO's; YOLO labels and CSV rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePath
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any

from engine.errors import InputError

if TYPE_CHECKING:
    from engine.vision.result import Result

SCHEMA_VERSION = 1

CSV_COLUMNS = ("path", "class_id", "label", "score", "left", "top", "right", "bottom")

# COCO numbers its 80 classes 1..90 and leaves these out.
_COCO_UNUSED = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
COCO_CATEGORIES = tuple(each for each in range(1, 91) if each not in _COCO_UNUSED)


def number(value: float) -> float | None:
    """Return a number that JSON can hold."""
    value = float(value)
    return value if math.isfinite(value) else None


def document(value: object) -> str:
    """Return strict JSON in UTF-8; stray bytes of a file name are escaped."""
    import json

    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def engine_entry(result: Result) -> dict[str, Any]:
    width, height = result.size
    return {
        "schema_version": SCHEMA_VERSION,
        "path": result.path,
        "width": width,
        "height": height,
        "detections": [
            {
                "class_id": found.class_id,
                "label": found.label,
                "score": number(found.score),
                "box": dict(zip(found.box._fields, map(number, found.box), strict=True)),
            }
            for found in result
        ],
        "timing_ms": {name: number(value) for name, value in result.timing.items()},
    }


def darknet_entry(result: Result, frame_id: int = 1) -> str:
    """One element of the list that darknet's -out option writes, blanks and all."""
    objects = ", \n".join(
        f'  {{"class_id":{class_id}, "name":{document(result.label_of(class_id))},'
        f' "relative_coordinates":{{"center_x":{x:.6f}, "center_y":{y:.6f},'
        f' "width":{width:.6f}, "height":{height:.6f}}}, "confidence":{score:.6f}}}'
        for class_id, score, (x, y, width, height) in zip(
            result.class_ids.tolist(), result.scores.tolist(), result.xywhn.tolist(), strict=True
        )
    )
    name = "" if result.path is None else f' "filename":{document(result.path)}, \n'
    return f'{{\n "frame_id":{frame_id}, \n{name} "objects": [ \n{objects}\n ] \n}}'


def coco_entries(
    result: Result, image_id: int | str | None = None, categories: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """COCO's detection results.

    Without an image_id the file's name gives it, as a number where it is one. Without categories
    the 80 classes of COCO get COCO's own numbers, any others count from 1.
    """
    if image_id is None:
        stem = PurePath(result.path or "").stem
        image_id = int(stem) if stem.isascii() and stem.isdigit() else stem
    if categories is None:
        is_coco = len(result.names) == len(COCO_CATEGORIES) and result.names[0] == "person"
        categories = COCO_CATEGORIES if is_coco else range(1, 2 + max(result.class_ids, default=0))
    try:
        numbers = [int(categories[each]) for each in result.class_ids.tolist()]
    except (LookupError, TypeError, ValueError):
        raise InputError(
            f"categories: expected a number for each class, got {brief(categories)}"
        ) from None
    return [
        {
            "image_id": image_id,
            "category_id": category,
            "bbox": [number(each) for each in (*found.box[:2], found.box.width, found.box.height)],
            "score": number(found.score),
        }
        for found, category in zip(result, numbers, strict=True)
    ]


def yolo_labels(result: Result, *, conf: bool = False) -> str:
    """Lines "class x y width height [score]" relative to the picture and clipped to it."""
    width, height = result.size
    lines = []
    for found in result:
        box = found.box.clipped(width, height)
        if box.width > 0 and box.height > 0:
            x, y = (box.left + box.right) / 2 / width, (box.top + box.bottom) / 2 / height
            sides = f"{box.width / width:.6f} {box.height / height:.6f}"
            score = f" {found.score:.6f}" if conf else ""
            lines.append(f"{found.class_id} {x:.6f} {y:.6f} {sides}{score}\n")
    return "".join(lines)


def csv_rows(result: Result) -> list[tuple[object, ...]]:
    """Rows under CSV_COLUMNS, for csv.writer."""
    return [
        (result.path or "", found.class_id, found.label, found.score, *found.box)
        for found in result
    ]
