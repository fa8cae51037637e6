"""A labelled data set, before its pictures are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from engine.evaluate.examples import Objects
from engine.vision.serialize import COCO_CATEGORIES, are_coco_classes

_MOST_LINES = 20  # maximum number of warnings and of errors
ReadObjects: TypeAlias = Callable[[tuple[int, int]], Objects]  # takes the size of the picture


def size_problem(file: str, labelled: tuple[float, float], size: tuple[int, int]) -> str:
    """Return the problem of a picture whose size differs from the labelled size."""
    own, found = (f"{width:.10g} x {height:.10g}" for width, height in (labelled, size))
    # One of the sizes may precede the EXIF orientation.
    hint = ". See EXIF in docs/evaluate.md" if labelled == size[::-1] else ""
    return f"{file}: size: labelled as {own}, the picture is {found}{hint}"


@dataclass(frozen=True, eq=False)
class Entry:
    """A picture of the data set; `objects` reads its labels once the size is known."""

    image_id: int | str
    path: str
    objects: ReadObjects
    size: tuple[int, int] | None = None  # if the data set states it


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """A data set; reading its labels appends to `problems`, reading results to `remarks`."""

    source: str
    names: tuple[str, ...]
    categories: tuple[int, ...]  # COCO's category id of each class
    entries: tuple[Entry, ...]
    problems: list[str]
    unlabelled: int = 0  # pictures without a label file, which count as empty
    label_files: tuple[Path, ...] = ()
    remarks: list[str] = field(default_factory=list)  # about possible mistakes
    without_category: frozenset[int] = frozenset()  # classes without an id in the file

    @property
    def has_no_labels(self) -> bool:
        return 0 < self.unlabelled == len(self.entries)

    def warnings(self) -> Iterator[str]:
        """Yield a limited number of warnings about what was read."""
        yield from shortened([*self.remarks, *self.problems])
        if self.unlabelled:
            count = f"{self.unlabelled} of {len(self.entries)}"
            yield f"{count} pictures have no label file: they count as empty"


def shortened(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    yield from lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        yield f"… and {len(lines) - _MOST_LINES} more"


def coco_category_ids(names: Sequence[str]) -> tuple[int, ...]:
    """Return COCO's ids for its 80 classes; the ids of any other classes count from 1."""
    return COCO_CATEGORIES if are_coco_classes(names) else tuple(range(1, len(names) + 1))
