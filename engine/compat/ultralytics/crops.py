"""Names and sizes of the crops that save_crop() writes."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import numpy as np

from engine.files.atomic import make_folder, write_new
from engine.files.naming import folder_name_of, shortened
from engine.vision.encode import encode
from engine.vision.image import Picture
from engine.vision.result import Result

_CROP_GAIN, _CROP_PIXELS = 1.02, 10  # factor and margin added to a box
_INSIDE = 0.25  # pixels


def add_crops(result: Result, picture: Picture, folder: Path, stem: str) -> list[Path]:
    """Write each box to the first free name of folder/label/stem.jpg, stem-2.jpg, …."""
    written: list[Path] = []
    for found, image in result.crops(picture):
        path = _free(folder / folder_name_of(found.label), shortened(stem))
        make_folder(path.parent)
        write_new(path, encode(image, path))
        written.append(path)
    return written


def _free(folder: Path, stem: str) -> Path:
    names = chain([f"{stem}.jpg"], (f"{stem}-{number}.jpg" for number in count(2)))
    return next(path for name in names if not (path := folder / name).exists())


def with_margin(result: Result) -> Result:
    """Enlarge boxes as ultralytics does for crops, to integer pixels inside the picture."""
    width, height = result.size
    middle = (result.xyxy[:, :2] + result.xyxy[:, 2:]) / 2
    half = ((result.xyxy[:, 2:] - result.xyxy[:, :2]) * _CROP_GAIN + _CROP_PIXELS) / 2
    edges = np.trunc(np.hstack([middle - half, middle + half])).clip(0, [width, height] * 2)
    edges += [_INSIDE, _INSIDE, -_INSIDE, -_INSIDE]  # crops() rounds outwards
    centres, sides = (edges[:, :2] + edges[:, 2:]) / 2, edges[:, 2:] - edges[:, :2]
    xywhn = np.hstack([centres, sides]) / ([width, height] * 2)
    return replace(result, xywhn=xywhn.astype(np.float32))
