"""Write the pictures of an evaluation: curves, the confusion matrix, the worst pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from engine.arrays import Array
from engine.evaluate import curves
from engine.evaluate.examples import Example
from engine.evaluate.plot import BACKGROUND, GRID, TEXT, font, short
from engine.evaluate.score import Report
from engine.evaluate.worst_pictures import draw_worst
from engine.files.atomic import NewFile
from engine.vision.colours import Colour

_DARKEST = (16, 62, 120)
_SIDE = 900  # pixels; a matrix is larger if its cells would be too small for a number
_SMALLEST_WITH_NUMBER, _SMALLEST, _LARGEST = 28, 6, 48
_MAX_WITH_NUMBERS = 60  # maximum number of classes for cells with numbers
_MAX_CLASSES = 1000

ReadPicture = Callable[[str], Image.Image]


def write(
    folder: Path,
    report: Report,
    examples: Sequence[Example] = (),
    *,
    read: ReadPicture | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write the pictures; with `read`, also those of `examples` with the most mistakes."""
    pictures = {"precision_recall.png": curves.precision_recall(report).draw()}
    for name in ("f1", "precision", "recall"):
        pictures[f"{name}.png"] = curves.over_score(report, name).draw()
    for class_id, each in enumerate(report.classes):
        if each.ranking.objects and len(each.ranking.scores):
            name = "".join(letter if letter.isalnum() else "_" for letter in each.name)[:60]
            pictures[f"{class_id:03}_{name}.png"] = curves.of_class(report, class_id).draw()
    if drawn := matrix(report.confusion, [each.name for each in report.classes]):
        pictures["confusion.png"] = drawn
    if read and (worst := draw_worst(examples, report, read)):
        pictures["worst.png"] = worst
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in pictures]
    for path, picture in zip(paths, pictures.values(), strict=True):
        with NewFile(path, overwrite=overwrite) as file:
            picture.save(file.part, "PNG", optimize=True)
    return paths


def matrix(counts: Array, names: Sequence[str]) -> Image.Image | None:
    """Draw the classes that occur in the confusion matrix, unless they are too many.

    A darker cell is a larger share of its row. "background" means no object, or no detection.
    """
    used = np.flatnonzero(counts.sum(axis=0) + counts.sum(axis=1))
    used = np.union1d(used, [len(names)])
    if len(used) > _MAX_CLASSES:
        return None
    counts = counts[np.ix_(used, used)]
    labels = [*(short(names[each]) for each in used[:-1]), "background"]
    smallest = _SMALLEST_WITH_NUMBER if len(labels) <= _MAX_WITH_NUMBERS else _SMALLEST
    cell = max(smallest, min(_LARGEST, _SIDE // len(labels)))
    text = font(max(9, min(14, cell - 2)))
    margin = 20 + max(round(text.getlength(label)) for label in labels)
    side = margin + cell * len(labels) + 20
    image = Image.new("RGB", (max(side, 320), side + 30), BACKGROUND)
    pen = ImageDraw.Draw(image)
    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for (row, column), count in np.ndenumerate(counts):
        x, y = margin + column * cell, margin + row * cell
        shade = _shade(count / totals[row, 0])
        pen.rectangle((x, y, x + cell - 1, y + cell - 1), fill=shade, outline=GRID)
        if count and cell >= _SMALLEST_WITH_NUMBER:
            colour = BACKGROUND if sum(shade) < 410 else TEXT
            number = font(14 if count < 1000 else 10)
            centre = (x + cell / 2, y + cell / 2)
            pen.text(centre, str(count), fill=colour, font=number, anchor="mm")
    for index, label in enumerate(labels):
        middle = margin + (index + 0.5) * cell
        pen.text((margin - 8, middle), label, fill=TEXT, font=text, anchor="rm")
    image.paste(_rotated(labels, cell, margin), (margin, 0))
    pen.text((8, side), "rows: objects, columns: detected as", fill=TEXT, font=font(13))
    return image


def _rotated(labels: Sequence[str], cell: int, margin: int) -> Image.Image:
    """Draw the labels of the columns, each rotated by 90 degrees."""
    strip = Image.new("RGB", (margin - 8, cell * len(labels)), BACKGROUND)
    pen = ImageDraw.Draw(strip)
    text = font(max(9, min(14, cell - 2)))
    for index, label in enumerate(labels):
        pen.text((4, (index + 0.5) * cell), label, fill=TEXT, font=text, anchor="lm")
    return strip.rotate(90, expand=True)


def _shade(part: float) -> Colour:
    red, green, blue = (round(255 - part * (255 - each)) for each in _DARKEST)
    return red, green, blue
