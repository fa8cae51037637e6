"""From pictures in any form to the rows of one run, with what is needed to map boxes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple, TypeAlias

import numpy as np

from engine.arrays import Array
from engine.backends.base import Placed
from engine.errors import ImageError, InputError
from engine.plan.shapes import Shape
from engine.vision import image, resize
from engine.vision.image import Picture, Source
from engine.vision.resize import Fit, Placement

Wanted: TypeAlias = "Source | ImageError"  # an error: where it came from could not be read


class Prepared(NamedTuple):
    """A picture that was read, and where it lies in its row."""

    picture: Picture
    placement: Placement
    milliseconds: float


@dataclass(frozen=True, eq=False)
class Batch:
    """`pictures` has an entry for each source, in order, `placed` one for each that was read.

    `images` has a row for each of these, or is None where the device is to scale them.
    """

    images: Array | None
    placed: tuple[Placed, ...]
    pictures: tuple[Prepared | ImageError, ...]

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """One of several, all of one intake."""
        rows = [batch.images for batch in batches if batch.images is not None]
        return cls(
            np.concatenate(rows) if rows else None,
            tuple(each for batch in batches for each in batch.placed),
            tuple(each for batch in batches for each in batch.pictures),
        )

    def row(self, number: int) -> Batch:
        """One picture of a batch that has no errors."""
        images = None if self.images is None else self.images[number : number + 1]
        return Batch(images, (self.placed[number],), (self.pictures[number],))


def check_frames(frames: object) -> None:
    """Raise unless these are pictures that are to be found by the array that owns their memory."""
    if not isinstance(frames, np.ndarray) or frames.dtype != np.uint8:
        got = frames.dtype if isinstance(frames, np.ndarray) else type(frames).__name__
        raise InputError(f"pin: expected an array of uint8, got {got}")
    if not (frames.flags.owndata and frames.flags.c_contiguous and frames.size):
        raise InputError(
            "pin: expected an array that owns its memory, in C order, got a view or nothing. "
            "Make one with numpy.empty(), fill it, and pass its rows as pictures"
        )


@dataclass(frozen=True)
class Intake:
    """How a network takes pictures."""

    shape: Shape
    resize: Fit
    exact: bool = False  # darknet's fault in the bottom row and all
    orient: bool = True
    scales: bool = True  # here; otherwise the device does

    def prepare(
        self, sources: Sequence[Wanted], *, bgr: bool = False, max_pixels: int | None = None
    ) -> Batch:
        """Read and scale pictures; those that cannot be read become their ImageError."""
        channels, height, width = self.shape.sides
        if not (self.scales or bgr):
            begin = time.perf_counter()
            if image.are_uniform_arrays(sources, channels=channels, max_pixels=max_pixels):
                return self._of_alike(sources, begin)
        rows = len(sources) if self.scales else 0
        images = np.empty((rows, channels, height, width), np.float32)
        placed: list[Placed] = []
        pictures: list[Prepared | ImageError] = []
        placements: dict[tuple[int, int], Placement] = {}
        for source in sources:
            start = time.perf_counter()
            if isinstance(source, ImageError):
                pictures.append(source)
                continue
            try:
                picture = image.read(
                    source, channels=channels, orient=self.orient, bgr=bgr, max_pixels=max_pixels
                )
            except ImageError as error:
                pictures.append(error)
                continue
            size = picture.size
            placement = placements.get(size)
            if placement is None:
                placement = placements[size] = Placement(size, (width, height), self.resize)
            if self.scales:
                row = images[len(placed)]
                resize.scale_into(picture.pixels, placement, row, exact=self.exact)
            placed.append(Placed(picture.pixels, placement, self.exact))
            milliseconds = (time.perf_counter() - start) * 1e3
            pictures.append(Prepared(picture, placement, milliseconds))
        scaled = images[: len(placed)] if self.scales else None
        return Batch(scaled, tuple(placed), tuple(pictures))

    def _of_alike(self, arrays: Sequence[Array], begin: float) -> Batch:
        """Of arrays that stay as they are: little Python for each, which thousands a second need.

        Their time is what they took on average.
        """
        _, height, width = self.shape.sides
        pictures = [Picture(each) for each in arrays]
        placement = Placement(pictures[0].size, (width, height), self.resize)
        placed = tuple(map(_placed, zip(arrays, repeat(placement), repeat(self.exact))))
        milliseconds = (time.perf_counter() - begin) * 1e3 / len(arrays)
        entries = zip(pictures, repeat(placement), repeat(milliseconds))
        return Batch(None, placed, tuple(map(_prepared, entries)))


# Their own constructors are written in Python: half of the time here.
_placed: Callable[[tuple[Array, Placement, bool]], Placed] = partial(tuple.__new__, Placed)
_prepared: Callable[[tuple[Picture, Placement, float]], Prepared] = partial(tuple.__new__, Prepared)
