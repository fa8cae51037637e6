"""Results as text: sentences, dicts, tables and label files in ultralytics' formats."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

from engine.files.atomic import make_folder, unwritable
from engine.vision.classification import Classification, Ranked
from engine.vision.result import Result
from engine.vision.serialize import TRACK_COLUMN, track_id, yolo_labels


def sentence(result: Result | Classification) -> str:
    """Return text such as "2 dogs, 1 cat, ", or the best classes, with ultralytics' comma."""
    if isinstance(result, Classification):
        best = ", ".join(f"{each.label} {each.score:.2f}" for each in _best(result))
        return f"{best or '(no classes)'}, "
    counts = Counter(sorted(zip(result.class_ids.tolist(), result.labels, strict=True)))
    found = (f"{count} {label}{'s' * (count > 1)}, " for (_, label), count in counts.items())
    return "".join(found) or "(no detections), "


def summary(
    result: Result | Classification, normalize: bool, decimals: int
) -> list[dict[str, Any]]:
    """Return name, class, score, box and identity of each box, or the best five classes."""
    if isinstance(result, Classification):
        return [
            {"name": each.label, "class": each.class_id, "confidence": round(each.score, decimals)}
            for each in _best(result)
        ]
    edges = result.xyxyn if normalize else result.xyxy
    return [
        {
            "name": each.label,
            "class": each.class_id,
            "confidence": round(each.score, decimals),
            "box": {
                name: round(value, decimals)
                for name, value in zip(("x1", "y1", "x2", "y2"), row, strict=True)
            },
            **track_id(each),
        }
        for each, row in zip(result, edges.tolist(), strict=True)
    ]


def _best(result: Classification) -> list[Ranked]:
    """Return the best five classes, or none if the network overflowed."""
    return result.top(min(5, len(result)))


def columns(result: Result | Classification) -> tuple[str, ...]:
    """Return the keys of summary(), even if nothing was found."""
    names = ("name", "class", "confidence")
    if isinstance(result, Classification):
        return names
    return (*names, "box", *(() if result.track_ids is None else (TRACK_COLUMN,)))


def rows(
    result: Result | Classification, normalize: bool, decimals: int
) -> list[tuple[object, ...]]:
    """Return the values of summary()."""
    return [tuple(each.values()) for each in summary(result, normalize, decimals)]


def as_csv(result: Result | Classification, normalize: bool, decimals: int) -> str:
    """Return summary() as CSV with a line of headings."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns(result))
    writer.writerows(rows(result, normalize, decimals))
    return text.getvalue()


def append_labels(result: Result | Classification, path: str | Path, *, conf: bool) -> None:
    """Append a line for each box or each of the best five classes; without any, create no file."""
    if isinstance(result, Classification):
        lines = "".join(f"{each.score:.2f} {each.label}\n" for each in _best(result))
    else:
        lines = yolo_labels(result, conf=conf, ids=True)
    if not lines:
        return
    make_folder(Path(path).parent)
    try:
        with Path(path).open("a", encoding="utf-8", newline="\n") as file:
            file.write(lines)
    except OSError as error:
        raise unwritable(path, error) from None
