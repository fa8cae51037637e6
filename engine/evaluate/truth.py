"""What is known about a data set before any picture is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from engine.evaluate.examples import Objects
from engine.vision.serialize import COCO_CATEGORIES, are_coco_classes

ObjectsOf: TypeAlias = Callable[[tuple[int, int]], Objects]  # of the picture's size


@dataclass(frozen=True, eq=False)
class Entry:
    """A picture of the data set; `objects` reads its labels once the picture's size is known."""

    image_id: int | str
    path: str
    objects: ObjectsOf
    size: tuple[int, int] | None = None  # where the data set tells it


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """A data set; `problems` grows while labels are read, one line for each."""

    source: str
    names: tuple[str, ...]
    categories: tuple[int, ...]  # the number that COCO's files use for each class
    entries: tuple[Entry, ...]
    problems: list[str]
    unlabelled: int = 0  # pictures without a label file: they count as empty
    label_files: tuple[Path, ...] = ()


def coco_numbers(names: Sequence[str]) -> tuple[int, ...]:
    """COCO's own numbers for its 80 classes; any others count from 1."""
    if are_coco_classes(names):
        return COCO_CATEGORIES
    return tuple(range(1, len(names) + 1))
