"""From pictures in any form to the rows of one run, with what is needed to map boxes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.errors import ImageError
from engine.plan.shapes import Shape
from engine.vision import image
from engine.vision.image import Picture, Source
from engine.vision.resize import Placement, centre_crop, letterbox, stretch

Array = NDArray[Any]
Wanted: TypeAlias = "Source | ImageError"  # an error: where it came from could not be read
Resize = Callable[..., tuple[Array, Placement]]

RESIZES: dict[str, Resize] = {"stretch": stretch, "letterbox": letterbox, "crop": centre_crop}


@dataclass(frozen=True, eq=False)
class Prepared:
    """A picture that was read, and where it lies in its row."""

    picture: Picture
    placement: Placement
    milliseconds: float


@dataclass(frozen=True, eq=False)
class Batch:
    """`pictures` has an entry for each source, in order; `images` a row for each that was read."""

    images: Array
    pictures: tuple[Prepared | ImageError, ...]


@dataclass(frozen=True)
class Intake:
    """How a network takes pictures."""

    shape: Shape
    resize: str  # a row of RESIZES
    exact: bool = False  # darknet's fault in the bottom row and all
    orient: bool = True

    def prepare(self, sources: Sequence[Wanted], *, bgr: bool) -> Batch:
        """Read and scale pictures; those that cannot be read become their ImageError."""
        channels, height, width = self.shape.sides
        images = np.empty((len(sources), channels, height, width), np.float32)
        pictures: list[Prepared | ImageError] = []
        row = 0
        for source in sources:
            start = time.perf_counter()
            if isinstance(source, ImageError):
                pictures.append(source)
                continue
            try:
                picture = image.read(source, channels=channels, orient=self.orient, bgr=bgr)
            except ImageError as error:
                pictures.append(error)
                continue
            _, placement = RESIZES[self.resize](
                picture, (width, height), exact=self.exact, out=images[row]
            )
            milliseconds = (time.perf_counter() - start) * 1e3
            pictures.append(Prepared(picture, placement, milliseconds))
            row += 1
        return Batch(images[:row], tuple(pictures))
