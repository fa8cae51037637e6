"""Serialize the result of a detector: JSON in three styles, YOLO labels and CSV rows."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePath
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import InputError
from engine.vision.code import Code
from engine.vision.detection import Detection
from engine.vision.frame import Frame

if TYPE_CHECKING:
    from json import JSONEncoder

    from engine.vision.result import Result

SCHEMA_VERSION = 1

_LINE_ENDS = re.compile("[\x85\u2028\u2029]")  # line ends in Unicode, but not in JSON
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_ID_DIGITS = 18  # so that an id fits into 64 bits
_SCORE_DIGITS = 6
_PIXEL_DIGITS = 3
_MILLISECOND_DIGITS = 3

CSV_COLUMNS = ("path", "class_id", "label", "score", "left", "top", "right", "bottom")
TRACK_COLUMN = "track_id"
FRAME_COLUMN = "frame"
CODE_COLUMNS = ("text", "format", "corners")

# COCO numbers its 80 classes from 1 to 90 without these.
_COCO_UNUSED = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
COCO_CATEGORIES = tuple(each for each in range(1, 91) if each not in _COCO_UNUSED)


def json_number(value: float) -> float | None:
    """Return a finite value as it is and None for NaN and infinity, which JSON cannot hold."""
    value = float(value)
    return value if math.isfinite(value) else None


def score(value: float) -> float:
    """Return a score with six significant digits."""
    return float(f"{value:.{_SCORE_DIGITS}g}")


def pixels(value: float) -> float:
    """Return a position in a picture, rounded to a thousandth of a pixel."""
    return round(value, _PIXEL_DIGITS)


def milliseconds(value: float) -> float | None:
    return json_number(round(value, _MILLISECOND_DIGITS))


@lru_cache(maxsize=1)
def _encoder() -> JSONEncoder:
    import json

    return json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def json_text(value: object) -> str:
    """Return strict JSON on one line, whatever the reader takes for a line end.

    Undecodable bytes of file names become text such as \\udce4, as in CSV: many parsers refuse lone
    surrogates.
    """
    text = _encoder().encode(value)
    if text.isascii():
        return text
    text = _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def engine_entry(result: Result) -> dict[str, Any]:
    width, height = result.size
    return {
        "schema_version": SCHEMA_VERSION,
        "path": result.path,
        "width": width,
        "height": height,
        "detections": _detections(result),
        **({} if result.counts is None else {"counts": result.counts}),
        **({"tiles": len(result.tiles)} if result.tiles else {}),
        "timing_ms": {name: milliseconds(value) for name, value in result.timing.items()},
        **frame_entry(result.frame),
    }


def _detections(result: Result) -> list[dict[str, Any]]:
    """Return an entry for each box; optimised, as a run writes thousands a second."""
    if not len(result.scores):
        return []
    edges = result.xyxy.astype(np.float64)  # from float32, so products are exact, as in round()
    edges = np.rint(edges * 10**_PIXEL_DIGITS) / 10**_PIXEL_DIGITS
    columns = result.class_ids.tolist(), result.scores.tolist(), edges.tolist()
    entries: list[dict[str, Any]] = [
        {
            "class_id": class_id,
            "label": result.label_of(class_id),
            "score": score(value),
            "box": {"left": left, "top": top, "right": right, "bottom": bottom},
        }
        for class_id, value, (left, top, right, bottom) in zip(*columns, strict=True)
    ]
    if not (np.isfinite(result.scores).all() and np.isfinite(edges).all()):
        for entry in entries:
            entry["score"] = json_number(entry["score"])
            entry["box"] = {edge: json_number(each) for edge, each in entry["box"].items()}
    if result.track_ids is not None:
        for entry, track in zip(entries, result.track_ids.tolist(), strict=True):
            entry["track_id"] = track
    if result.codes is not None:
        for entry, code in zip(entries, result.codes, strict=True):
            entry.update(code_entry(code))
    return entries


def frame_entry(frame: Frame | None) -> dict[str, Any]:
    """Return the number and the time of a frame under their keys, or nothing."""
    if frame is None:
        return {}
    return {"frame": frame.number, "seconds": json_number(round(frame.seconds, 6))}


def track_id(found: Detection) -> dict[str, int]:
    """Return the identity under its key, or nothing without a tracker."""
    return {} if found.track_id is None else {"track_id": found.track_id}


def code_entry(code: Code | None) -> dict[str, Any]:
    """Return the entries of a code, with its bytes if they differ from those of the text."""
    if code is None:
        return dict.fromkeys(CODE_COLUMNS)
    entry: dict[str, Any] = {
        "text": code.text,
        "format": code.format,
        "corners": [[pixels(x), pixels(y)] for x, y in code.corners],
    }
    if code.text.encode("utf-8", "surrogatepass") != code.content:
        entry["bytes"] = base64.b64encode(code.content).decode()
    return entry


def darknet_entry(result: Result, frame_id: int = 1) -> str:
    """Return an element of the list that darknet's -out option writes, with the same spacing.

    Darknet has no identities; those of a tracker come last.
    """
    tracks = [""] * len(result.scores)
    if result.track_ids is not None:
        tracks = [f', "track_id":{each}' for each in result.track_ids.tolist()]
    objects = ", \n".join(
        f'  {{"class_id":{class_id}, "name":{json_text(result.label_of(class_id))},'
        f' "relative_coordinates":{{"center_x":{x:.6f}, "center_y":{y:.6f},'
        f' "width":{width:.6f}, "height":{height:.6f}}}, "confidence":{score:.6f}{track}}}'
        for class_id, score, (x, y, width, height), track in zip(
            *(result.class_ids.tolist(), result.scores.tolist(), result.xywhn.tolist(), tracks),
            strict=True,
        )
    )
    name = "" if result.path is None else f' "filename":{json_text(result.path)}, \n'
    return f'{{\n "frame_id":{frame_id}, \n{name} "objects": [ \n{objects}\n ] \n}}'


def coco_entries(
    result: Result,
    image_id: int | str | None = None,
    categories: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Return COCO detection results.

    `image_id` defaults to the number of a frame, or that at the end of the file name, or else to
    its stem.
    `categories` defaults to COCO's category ids for its 80 classes, otherwise to 1, 2, ….
    """
    if image_id is None and result.frame is not None:
        image_id = result.frame.number
    if image_id is None:
        number = trailing_number(result.path or "")
        image_id = PurePath(result.path or "").stem if number is None else number
    if categories is None:
        count = 1 + max(result.class_ids, default=0)
        categories = COCO_CATEGORIES if are_coco_classes(result.names) else range(1, 1 + count)
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
            "bbox": [
                json_number(pixels(each))
                for each in (*found.box[:2], found.box.width, found.box.height)
            ],
            "score": json_number(score(found.score)),
            **track_id(found),
        }
        for found, category in zip(result, numbers, strict=True)
    ]


def trailing_number(path: str) -> int | None:
    """Return 785 for COCO_val2014_000000000785.jpg, as darknet does, and None for dog.jpg."""
    digits = re.search(r"[0-9]+$", PurePath(path).stem)
    return int(digits[0][-_MAX_ID_DIGITS:]) if digits else None


def are_coco_classes(names: Sequence[str]) -> bool:
    return len(names) == len(COCO_CATEGORIES) and names[0] == "person"


def yolo_labels(result: Result, *, conf: bool = False, ids: bool = False) -> str:
    """Return lines "class x y width height [score] [identity]", relative to the picture.

    Boxes are clipped to it.
    """
    width, height = result.size
    lines = []
    for found in result:
        box = found.box.clipped(width, height)
        if box.width > 0 and box.height > 0:
            x, y = (box.left + box.right) / 2 / width, (box.top + box.bottom) / 2 / height
            sides = f"{box.width / width:.6f} {box.height / height:.6f}"
            score = f" {found.score:.6f}" if conf else ""
            track = f" {found.track_id}" if ids and found.track_id is not None else ""
            lines.append(f"{found.class_id} {x:.6f} {y:.6f} {sides}{score}{track}\n")
    return "".join(lines)


def csv_columns(result: Result) -> tuple[str, ...]:
    tracks = () if result.track_ids is None else (TRACK_COLUMN,)
    codes = () if result.codes is None else CODE_COLUMNS
    return (*CSV_COLUMNS, *tracks, *codes, *(() if result.frame is None else (FRAME_COLUMN,)))


def csv_rows(result: Result) -> list[tuple[object, ...]]:
    """Return rows for csv.writer under the headings csv_columns()."""
    return [
        (
            *(result.path or "", found.class_id, found.label, score(found.score)),
            *map(pixels, found.box),
            *track_id(found).values(),
            *(() if result.codes is None else _code_cells(found.code)),
            *(() if result.frame is None else (result.frame.number,)),
        )
        for found in result
    ]


def _code_cells(code: Code | None) -> tuple[str, str, str]:
    if code is None:
        return "", "", ""
    corners = (pixels(value) for point in code.corners for value in point)
    return code.text, code.format, " ".join(f"{each:.15g}" for each in corners)
