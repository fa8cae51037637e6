"""Hide what was found in a picture, so that it cannot be recovered from the result.

Both ways keep only a few coarsely rounded average colours of the box: a blur of the actual pixels
could be partly undone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from PIL import Image, ImageFilter

from engine.errors import InputError
from engine.files.naming import shown
from engine.vision.classes import class_ids_of
from engine.vision.detection import Box

Way = Literal["blur", "pixelate"]
WAYS: tuple[Way, ...] = ("blur", "pixelate")

EVERY = "all"  # even if a class has this name, so that nothing is left visible by mistake

_MARGIN = 0.1  # on each side of a box, relative to its size, as boxes are inexact
_LEAST_MARGIN = 2  # pixels
_MOST_CELLS = {"blur": 4, "pixelate": 8}  # along a side
_LEAST_CELL = 8  # pixels, so that a small box has few cells
_ROUNDED = [value // 16 * 16 + 8 for value in range(256)] * 3  # 16 levels of each colour


def hidden_classes(
    option: str, classes: Collection[str | int] | str | None, names: Sequence[str]
) -> Collection[int]:
    """Return the ids of classes to hide: names, numbers or "all" in a list, or one name.

    Errors begin with `option`.
    """
    if classes is None:
        return ()
    chosen = [classes] if isinstance(classes, str) else classes
    if isinstance(chosen, Collection) and not isinstance(chosen, bytes) and EVERY in chosen:
        return _Every()
    ids = class_ids_of(chosen, (*names, EVERY), what=option)
    for number in ids:
        if names and not 0 <= number < len(names):
            raise InputError(f"{option}: expected a number below {len(names)}, got {number}")
    return frozenset(ids)


def hides_any(classes: Collection[int]) -> bool:
    """Return whether there is a class to hide; the set of all classes is empty."""
    return bool(classes) or isinstance(classes, _Every)


def refuse_missed(
    option: str,
    hidden: Collection[int],
    sought: Collection[int] | None,
    names: Sequence[str],
    by: str,
) -> None:
    """Raise if the detector does not return the classes to hide; `by` excluded them."""
    if sought is None:
        return
    if isinstance(hidden, _Every):
        what = f"{by} omits classes, which would stay visible"
        raise InputError(f"{option} all: {what}. Name those to hide")
    missed = sorted(set(hidden) - set(sought))
    if missed:
        label = shown(names[missed[0]] if missed[0] < len(names) else str(missed[0]))
        raise InputError(f"{option} {label}: is excluded by {by}")


class _Every(frozenset[int]):
    """All classes."""

    def __contains__(self, each: object) -> bool:
        return True


def hide(image: Image.Image, boxes: Iterable[Box], way: Way) -> None:
    """Change an RGB image so that nothing inside the boxes, or near their edges, is visible."""
    for box in boxes:
        if area := _area(box, image.size):
            image.paste(_hidden(image.crop(area), way), area)


def _area(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Return the box with its margin, clipped to the picture."""
    if not all(map(math.isfinite, box)):
        return None
    across, down = (
        max(_MARGIN * side, _LEAST_MARGIN) for side in (abs(box.width), abs(box.height))
    )
    wide = Box(box.left - across, box.top - down, box.right + across, box.bottom + down)
    left, top, right, bottom = wide.clipped(*size)
    area = math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom)
    return area if area[2] > area[0] and area[3] > area[1] else None


def _hidden(part: Image.Image, way: Way) -> Image.Image:
    width, height = part.size
    cells = min(_MOST_CELLS[way], max(1, max(width, height) // _LEAST_CELL))
    cell = max(width, height) / cells
    counts = max(1, round(width / cell)), max(1, round(height / cell))
    colours = part.resize(counts, Image.Resampling.BOX).point(_ROUNDED)
    if way == "blur":
        smooth = colours.resize(part.size, Image.Resampling.BICUBIC)
        return smooth.filter(ImageFilter.GaussianBlur(cell / 2))
    return colours.resize(part.size, Image.Resampling.NEAREST).filter(
        ImageFilter.GaussianBlur(cell / 16)
    )
