"""Precision-recall curves and the confusion matrix as pictures, drawn with Pillow alone."""

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
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 50, 250, 60  # margins; names stand at the right
_DARKEST = (16, 62, 120)
_FINE = 3  # drawn this many times as large, then reduced
_INK, _GRID, _PAPER = (40, 40, 40), (222, 222, 222), (255, 255, 255)
_LEGEND = 24
_TICKS = 5
_MOST_IN_MATRIX = 1000  # classes: a picture that can still be looked at


def write(folder: Path, report: Report, *, overwrite: bool = False) -> list[Path]:
    """Write all curves in one picture, one picture a class, and the confusion matrix."""
    known = [(class_id, each) for class_id, each in enumerate(report.classes) if _has_curve(each)]
    best_first = sorted(known, key=lambda item: -(item[1].average_precision or 0.0))
    title = f"IoU {report.rules.match_iou:.2f}"
    pictures = {"precision_recall.png": curves(best_first, title)}
    for class_id, each in known:
        name = "".join(letter if letter.isalnum() else "_" for letter in each.name)[:60]
        pictures[f"{class_id:03}_{name}.png"] = curves([(class_id, each)], title)
    names = [each.name for each in report.classes]
    if len(names) <= _MOST_IN_MATRIX:
        pictures["confusion.png"] = matrix(report.confusion, names)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in pictures]
    for path, picture in zip(paths, pictures.values(), strict=True):
        with NewFile(path, overwrite=overwrite) as file:
            picture.save(file.part, "PNG", optimize=True)
    return paths


def curves(classes: Sequence[tuple[int, ClassScore]], title: str) -> Image.Image:
    """Precision over recall of each class, the first on top."""
    image, pen = _sheet(_WIDTH, _HEIGHT)
    _axes(pen, title)
    for class_id, each in reversed(classes):
        recall = np.concatenate([[0.0], each.ranking.recall])
        precision = np.concatenate([each.ranking.precision[:1], each.ranking.precision])
        points = [_at(x, y) for x, y in zip(recall.tolist(), precision.tolist(), strict=True)]
        pen.line(points, fill=colour_of(class_id), width=2 * _FINE, joint="curve")
    image = _reduced(image)
    _legend(ImageDraw.Draw(image), classes)
    return image


def matrix(counts: Array, names: Sequence[str]) -> Image.Image:
    """Objects down, what they were found as across; darker is a larger part of the row."""
    labels = [*names, "nothing"]
    cell = max(6, min(48, 900 // len(labels)))
    font = _font(max(9, min(14, cell - 2)))
    margin = 20 + max(round(font.getlength(_short(label))) for label in labels)
    side = margin + cell * len(labels) + 20
    image = Image.new("RGB", (side, side + 30), _PAPER)
    pen = ImageDraw.Draw(image)
    whole = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for (row, column), count in np.ndenumerate(counts):
        x, y = margin + column * cell, margin + row * cell
        shade = _shade(count / whole[row, 0])
        pen.rectangle((x, y, x + cell - 1, y + cell - 1), fill=shade, outline=_GRID)
        if count and cell >= 24:
            ink = _PAPER if sum(shade) < 380 else _INK
            pen.text((x + cell / 2, y + cell / 2), str(count), fill=ink, font=font, anchor="mm")
    for place, label in enumerate(labels):
        middle = margin + (place + 0.5) * cell
        pen.text((margin - 8, middle), _short(label), fill=_INK, font=font, anchor="rm")
    image.paste(_turned([_short(label) for label in labels], font, cell, margin), (margin, 0))
    pen.text((margin, side), "rows: objects, columns: found as", fill=_INK, font=_font(13))
    return image


def _has_curve(each: ClassScore) -> bool:
    return each.ranking.objects > 0 and len(each.ranking.scores) > 0


def _sheet(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (width * _FINE, height * _FINE), _PAPER)
    return image, ImageDraw.Draw(image)


def _reduced(image: Image.Image) -> Image.Image:
    return image.reduce(_FINE)


def _at(recall: float, precision: float) -> tuple[float, float]:
    x = _LEFT + recall * (_WIDTH - _LEFT - _RIGHT)
    y = _HEIGHT - _BOTTOM - precision * (_HEIGHT - _TOP - _BOTTOM)
    return x * _FINE, y * _FINE


def _axes(pen: ImageDraw.ImageDraw, title: str) -> None:
    font = _font(15 * _FINE)
    for tick in range(_TICKS + 1):
        part = tick / _TICKS
        pen.line([_at(part, 0), _at(part, 1)], fill=_GRID, width=_FINE)
        pen.line([_at(0, part), _at(1, part)], fill=_GRID, width=_FINE)
        x, y = _at(part, 0)
        pen.text((x, y + 8 * _FINE), f"{part:.1f}", fill=_INK, font=font, anchor="ma")
        x, y = _at(0, part)
        pen.text((x - 8 * _FINE, y), f"{part:.1f}", fill=_INK, font=font, anchor="rm")
    pen.line([_at(0, 1), _at(0, 0), _at(1, 0)], fill=_INK, width=2 * _FINE)
    x, y = _at(0.5, 0)
    pen.text((x, y + 32 * _FINE), "recall", fill=_INK, font=font, anchor="ma")
    x, y = _at(0, 1)
    pen.text((x, y - 32 * _FINE), f"precision at {title}", fill=_INK, font=font, anchor="ls")


def _legend(pen: ImageDraw.ImageDraw, classes: Sequence[tuple[int, ClassScore]]) -> None:
    font = _font(13)
    left, line = _WIDTH - _RIGHT + 20, (_HEIGHT - _TOP - _BOTTOM) / (_LEGEND + 1)
    for place, (class_id, each) in enumerate(classes[:_LEGEND]):
        y = _TOP + line * (place + 0.5)
        pen.line([(left, y), (left + 22, y)], fill=colour_of(class_id), width=4)
        text = f"{_short(each.name)}  {each.average_precision or 0.0:.3f}"
        pen.text((left + 30, y), text, fill=_INK, font=font, anchor="lm")
    if len(classes) > _LEGEND:
        y = _TOP + line * (_LEGEND + 0.5)
        text = f"and {len(classes) - _LEGEND} more"
        pen.text((left + 30, y), text, fill=_INK, font=font, anchor="lm")


def _turned(labels: Sequence[str], font: Font, cell: int, margin: int) -> Image.Image:
    """The labels side by side, each written upwards."""
    strip = Image.new("RGB", (margin - 8, cell * len(labels)), _PAPER)
    pen = ImageDraw.Draw(strip)
    for place, label in enumerate(labels):
        pen.text((4, (place + 0.5) * cell), label, fill=_INK, font=font, anchor="lm")
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
        raise InputError("curves: Pillow was built without FreeType, which writes text") from None
