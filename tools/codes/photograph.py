"""A photograph and the codes in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NAMES = ("qr", "datamatrix", "aztec", "pdf417", "barcode")
_SUFFIXES = {".jpg", ".jpeg", ".png"}


class PictureError(ValueError):
    """Pictures or labels that cannot be used; unlike SystemExit it reaches the parent of a pool."""


@dataclass(frozen=True)
class Target:
    """A code in a picture, and what makes it hard to find."""

    kind: int
    box: tuple[float, float, float, float]  # left, top, right, bottom in pixels
    size: float  # longer side of the box as a share of the picture's longer side
    angle: float = 0.0  # degrees from the nearest quarter turn
    tilt: float = 0.0  # degrees between the surface and the picture plane
    blur: float = 0.0  # pixels of a picture of 512
    contrast: float = 1.0  # difference of paper and ink, 0 to 1
    curvature: float = 0.0  # degrees of the cylinder that the code covers
    module: float = math.inf  # along the longer side, in pixels of a picture of 512


@dataclass(frozen=True)
class Photograph:
    pixels: NDArray[np.uint8]  # RGB
    targets: tuple[Target, ...]


def find_pictures(folders: list[Path]) -> list[Path]:
    """Return the pictures in folders, each of which has some, and those that are named."""
    found = []
    for folder in folders:
        paths = [folder] if folder.is_file() else folder.rglob("*")
        pictures = [path for path in paths if path.suffix.lower() in _SUFFIXES]
        if not pictures:
            raise PictureError(
                f"{folder}: has no pictures: expected {', '.join(sorted(_SUFFIXES))}"
            )
        found += pictures
    return sorted(found)
