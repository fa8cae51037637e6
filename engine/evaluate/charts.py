"""Draw precision-recall curves and the confusion matrix with Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine.arrays import Array
from engine.errors import InputError
from engine.evaluate.score import ClassScore, Report
from engine.files.atomic import NewFile
from engine.vision.colours import Colour, colour_of

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"

_WIDTH, _HEIGHT = 900, 640
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 50, 250, 60  # margins; the right one holds the legend
_DARKEST = (16, 62, 120)
_SUPERSAMPLING = 3  # draw at this multiple of the size, then reduce
_TEXT, _GRID, _BACKGROUND = (40, 40, 40), (222, 222, 222), (255, 255, 255)
_MAX_LEGEND = 24
_TICKS = 5
_MAX_MATRIX_CLASSES = 1000


def write(folder: Path, report: Report, *, overwrite: bool = False) -> list[Path]:
    """Write a picture with all curves, one per class, and one of the confusion matrix."""
    known = [(class_id, each) for class_id, each in enumerate(report.classes) if _has_curve(each)]
    best_first = sorted(known, key=lambda item: -(item[1].average_precision or 0.0))
    title = f"IoU {report.rules.match_iou:.2f}"
    pictures = {"precision_recall.png": curves(best_first, title)}
    for class_id, each in known:
        name = "".join(letter if letter.isalnum() else "_" for letter in each.name)[:60]
        pictures[f"{class_id:03}_{name}.png"] = curves([(class_id, each)], title)
    names = [each.name for each in report.classes]
    if len(names) <= _MAX_MATRIX_CLASSES:
        pictures["confusion.png"] = matrix(report.confusion, names)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in pictures]
    for path, picture in zip(paths, pictures.values(), strict=True):
        with NewFile(path, overwrite=overwrite) as file:
            picture.save(file.part, "PNG", optimize=True)
    return paths


def curves(classes: Sequence[tuple[int, ClassScore]], title: str) -> Image.Image:
    """Draw precision over recall for each class, the first on top."""
    image, pen = _canvas(_WIDTH, _HEIGHT)
    _axes(pen, title)
    for class_id, each in reversed(classes):
        recall = np.concatenate([[0.0], each.ranking.recall])
        precision = np.concatenate([each.ranking.precision[:1], each.ranking.precision])
        points = [_at(x, y) for x, y in zip(recall.tolist(), precision.tolist(), strict=True)]
        pen.line(points, fill=colour_of(class_id), width=2 * _SUPERSAMPLING, joint="curve")
    image = image.reduce(_SUPERSAMPLING)
    _legend(ImageDraw.Draw(image), classes)
    return image


def matrix(counts: Array, names: Sequence[str]) -> Image.Image:
    """Draw the confusion matrix; a darker cell is a larger share of its row."""
    labels = [*names, "nothing"]
    cell = max(6, min(48, 900 // len(labels)))
    font = _font(max(9, min(14, cell - 2)))
    margin = 20 + max(round(font.getlength(_short(label))) for label in labels)
    side = margin + cell * len(labels) + 20
    image = Image.new("RGB", (side, side + 30), _BACKGROUND)
    pen = ImageDraw.Draw(image)
    totals = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for (row, column), count in np.ndenumerate(counts):
        x, y = margin + column * cell, margin + row * cell
        shade = _shade(count / totals[row, 0])
        pen.rectangle((x, y, x + cell - 1, y + cell - 1), fill=shade, outline=_GRID)
        if count and cell >= 24:
            text_colour = _BACKGROUND if sum(shade) < 380 else _TEXT
            centre = (x + cell / 2, y + cell / 2)
            pen.text(centre, str(count), fill=text_colour, font=font, anchor="mm")
    for index, label in enumerate(labels):
        middle = margin + (index + 0.5) * cell
        pen.text((margin - 8, middle), _short(label), fill=_TEXT, font=font, anchor="rm")
    image.paste(_rotated([_short(label) for label in labels], font, cell, margin), (margin, 0))
    pen.text((margin, side), "rows: objects, columns: detected as", fill=_TEXT, font=_font(13))
    return image


def _has_curve(each: ClassScore) -> bool:
    return each.ranking.objects > 0 and len(each.ranking.scores) > 0


def _canvas(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (width * _SUPERSAMPLING, height * _SUPERSAMPLING), _BACKGROUND)
    return image, ImageDraw.Draw(image)


def _at(recall: float, precision: float) -> tuple[float, float]:
    x = _LEFT + recall * (_WIDTH - _LEFT - _RIGHT)
    y = _HEIGHT - _BOTTOM - precision * (_HEIGHT - _TOP - _BOTTOM)
    return x * _SUPERSAMPLING, y * _SUPERSAMPLING


def _axes(pen: ImageDraw.ImageDraw, title: str) -> None:
    font = _font(15 * _SUPERSAMPLING)
    for tick in range(_TICKS + 1):
        part = tick / _TICKS
        pen.line([_at(part, 0), _at(part, 1)], fill=_GRID, width=_SUPERSAMPLING)
        pen.line([_at(0, part), _at(1, part)], fill=_GRID, width=_SUPERSAMPLING)
        x, y = _at(part, 0)
        pen.text((x, y + 8 * _SUPERSAMPLING), f"{part:.1f}", fill=_TEXT, font=font, anchor="ma")
        x, y = _at(0, part)
        pen.text((x - 8 * _SUPERSAMPLING, y), f"{part:.1f}", fill=_TEXT, font=font, anchor="rm")
    pen.line([_at(0, 1), _at(0, 0), _at(1, 0)], fill=_TEXT, width=2 * _SUPERSAMPLING)
    x, y = _at(0.5, 0)
    pen.text((x, y + 32 * _SUPERSAMPLING), "recall", fill=_TEXT, font=font, anchor="ma")
    x, y = _at(0, 1)
    pen.text(
        (x, y - 32 * _SUPERSAMPLING), f"precision at {title}", fill=_TEXT, font=font, anchor="ls"
    )


def _legend(pen: ImageDraw.ImageDraw, classes: Sequence[tuple[int, ClassScore]]) -> None:
    font = _font(13)
    left, line = _WIDTH - _RIGHT + 20, (_HEIGHT - _TOP - _BOTTOM) / (_MAX_LEGEND + 1)
    for index, (class_id, each) in enumerate(classes[:_MAX_LEGEND]):
        y = _TOP + line * (index + 0.5)
        pen.line([(left, y), (left + 22, y)], fill=colour_of(class_id), width=4)
        text = f"{_short(each.name)}  {each.average_precision or 0.0:.3f}"
        pen.text((left + 30, y), text, fill=_TEXT, font=font, anchor="lm")
    if len(classes) > _MAX_LEGEND:
        y = _TOP + line * (_MAX_LEGEND + 0.5)
        text = f"and {len(classes) - _MAX_LEGEND} more"
        pen.text((left + 30, y), text, fill=_TEXT, font=font, anchor="lm")


def _rotated(labels: Sequence[str], font: Font, cell: int, margin: int) -> Image.Image:
    """Draw the labels of the columns, each rotated by 90 degrees."""
    strip = Image.new("RGB", (margin - 8, cell * len(labels)), _BACKGROUND)
    pen = ImageDraw.Draw(strip)
    for index, label in enumerate(labels):
        pen.text((4, (index + 0.5) * cell), label, fill=_TEXT, font=font, anchor="lm")
    return strip.rotate(90, expand=True)


def _shade(part: float) -> Colour:
    red, green, blue = (round(255 - part * (255 - each)) for each in _DARKEST)
    return red, green, blue


def _short(label: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in label)
    return printable if len(printable) <= 18 else f"{printable[:17]}…"


def _font(size: int) -> Font:
    try:
        return ImageFont.load_default(size)
    except ImportError:
        raise InputError("curves: Pillow was built without FreeType, which draws text") from None
