"""The pictures with the most mistakes: ground truth next to detections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from engine.arrays import Array
from engine.errors import ImageError
from engine.evaluate.confusion import confusion
from engine.evaluate.examples import Example
from engine.evaluate.plot import BACKGROUND, TEXT, font, short
from engine.evaluate.score import Report
from engine.vision.draw import annotate

COUNT = 16
_COLUMNS = 2  # pairs per row
_SIDE = 360  # longest side of a picture
_CAPTION, _GAP = 22, 8


def draw_worst(
    examples: Sequence[Example], report: Report, read: Callable[[str], Image.Image]
) -> Image.Image | None:
    """Draw up to 16 pictures with mistakes, the most mistakes first; objects left, found right."""
    names = [each.name for each in report.classes]
    mistakes = [_mistakes(example, report) for example in examples]
    order = sorted(range(len(examples)), key=lambda at: -mistakes[at])
    pairs: list[Image.Image] = []
    for at in order:
        if len(pairs) == COUNT or not mistakes[at]:
            break
        example = examples[at]
        if example.path:
            try:
                pairs.append(_pair(example, read(example.path), names, report, mistakes[at]))
            except ImageError:  # it was read before, but no longer exists
                continue
    return _montage(pairs) if pairs else None


def _mistakes(example: Example, report: Report) -> int:
    """Count missed objects, boxes without an object and objects found as another class."""
    rules = report.rules
    counts = confusion(
        [example],
        len(report.classes),
        iou_threshold=rules.match_iou,
        threshold=rules.threshold,
    )
    return int(counts.sum() - np.trace(counts))


def _pair(
    example: Example, picture: Image.Image, names: Sequence[str], report: Report, mistakes: int
) -> Image.Image:
    found = example.detections
    found = found.take(np.flatnonzero(found.scores > report.rules.threshold))
    scale = _SIDE / max(picture.size)
    sides = tuple(max(1, round(side * scale)) for side in picture.size)
    small = picture.convert("RGB").resize((sides[0], sides[1]))
    objects = example.objects
    truth = [names[each] for each in objects.class_ids]
    scored = [
        f"{names[each]} {score:.0%}"
        for each, score in zip(found.class_ids, found.scores, strict=True)
    ]
    left = annotate(small, _edges(objects.boxes, scale), objects.class_ids.tolist(), truth)
    right = annotate(small, _edges(found.boxes, scale), found.class_ids.tolist(), scored)
    pair = Image.new("RGB", (2 * _SIDE + _GAP, sides[1] + _CAPTION), BACKGROUND)
    pair.paste(left, (0, _CAPTION))
    pair.paste(right, (_SIDE + _GAP, _CAPTION))
    name = short(Path(example.path or "").name)
    caption = f"{name}: {_counted(len(objects), 'object')}"
    pen = ImageDraw.Draw(pair)
    pen.text((2, 2), caption, fill=TEXT, font=font(14))
    pen.text(
        (_SIDE + _GAP, 2),
        f"{len(found)} found, {_counted(mistakes, 'mistake')}",
        fill=TEXT,
        font=font(14),
    )
    return pair


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _edges(boxes: Array, scale: float) -> list[tuple[float, float, float, float]]:
    """Return left, top, right, bottom on the scaled picture."""
    rows = (boxes * scale).tolist()
    return [(x, y, x + width, y + height) for x, y, width, height in rows]


def _montage(pairs: Sequence[Image.Image]) -> Image.Image:
    rows = [pairs[at : at + _COLUMNS] for at in range(0, len(pairs), _COLUMNS)]
    heights = [max(pair.height for pair in row) + 2 * _GAP for row in rows]
    width = min(_COLUMNS, len(pairs)) * (pairs[0].width + 3 * _GAP)
    image = Image.new("RGB", (width, sum(heights)), BACKGROUND)
    for number, row in enumerate(rows):
        for column, pair in enumerate(row):
            at = (_GAP + column * (pair.width + 3 * _GAP), sum(heights[:number]) + _GAP)
            image.paste(pair, at)
    return image
