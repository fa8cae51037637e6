"""Names and sizes of the crops that save_crop() writes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.vision.result import Result

_CROP_GAIN, _CROP_PIXELS = 1.02, 10  # by which a crop is larger than its box
_INSIDE = 0.25  # pixels


def next_name(folder: Path) -> str:
    """Return the first of im.jpg, im2.jpg, … that follows the crops there, as in ultralytics."""
    found = (re.fullmatch(r"im(\d*)(?:-\d+)?", each.stem) for each in folder.glob("*/im*.jpg"))
    numbers = [int(each[1] or 1) for each in found if each]
    return f"im{max(numbers) + 1}.jpg" if numbers else "im.jpg"


def with_margin(result: Result) -> Result:
    """Enlarge the boxes as ultralytics does for crops, to whole pixels inside the picture."""
    width, height = result.size
    middle = (result.xyxy[:, :2] + result.xyxy[:, 2:]) / 2
    half = ((result.xyxy[:, 2:] - result.xyxy[:, :2]) * _CROP_GAIN + _CROP_PIXELS) / 2
    edges = np.trunc(np.hstack([middle - half, middle + half])).clip(0, [width, height] * 2)
    edges += [_INSIDE, _INSIDE, -_INSIDE, -_INSIDE]  # crops() rounds outwards
    centres, sides = (edges[:, :2] + edges[:, 2:]) / 2, edges[:, 2:] - edges[:, :2]
    xywhn = np.hstack([centres, sides]) / ([width, height] * 2)
    return replace(result, xywhn=xywhn.astype(np.float32))
