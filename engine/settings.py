"""The settings of results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from reprlib import repr as brief
from typing import Any, TypeAlias

from engine.arguments import check_kind, fraction, is_whole, parse_integer, whole
from engine.errors import InputError, suggest

# "auto", the sides of a tile in pixels, or (columns, rows)
Tiles: TypeAlias = "str | int | tuple[int, int]"

_LOWEST_READ = 0.1  # codes in boxes above this score are read, whatever the threshold
LARGEST_BATCH = 2**31 - 1  # a larger batch overflows 32-bit row counts
LARGEST_WORKERS = 1024  # each is a thread or a process
_LARGEST_OVERLAP = 0.8  # the number of tiles grows with the square of 1 / (1 - overlap)


@dataclass(frozen=True)
class Settings:
    """The settings of results, validated."""

    threshold: float = 0.25
    nms: float = 0.45
    hierarchy: float = 0.5
    top_k: int = 5
    batch: int = 1
    max_detections: int | None = None
    classes: tuple[int, ...] | None = None  # the classes to return; None means all
    read: bool = False  # read the codes that are found
    tiles: Tiles | None = None  # None means that pictures are not cut; "none" becomes None
    overlap: float = 0.2  # between neighbouring tiles, relative to their sides

    def __post_init__(self) -> None:
        made = self.__dict__  # bypasses frozen
        for name in ("threshold", "nms", "hierarchy"):
            made[name] = fraction(name, made[name])
        made["top_k"] = whole("top_k", self.top_k)
        made["batch"] = whole("batch", self.batch, most=LARGEST_BATCH)
        if self.max_detections is not None:
            made["max_detections"] = whole("max_detections", self.max_detections)
        check_kind("read", self.read, bool, "True or False")
        made["tiles"] = _tiles(self.tiles)
        made["overlap"] = fraction("overlap", self.overlap, most=_LARGEST_OVERLAP)

    @property
    def lowest_score(self) -> float:
        """The score above which boxes are needed: below the threshold, their codes may be read."""
        return min(self.threshold, _LOWEST_READ) if self.read else self.threshold

    @property
    def most_boxes(self) -> int | None:
        """The limit on the network's boxes; None if codes are read, which adds and drops boxes."""
        return None if self.read else self.max_detections

    @property
    def unread(self) -> Settings:
        """The settings of a run whose codes are read afterwards, by Detector.read_codes()."""
        if not self.read:
            return self
        return replace(
            self, read=False, threshold=self.lowest_score, max_detections=self.most_boxes
        )


def _tiles(value: Any) -> Tiles | None:
    """Parse tiles, which may be text such as "640" or "4x3"."""
    if value is None or (isinstance(value, str) and value == "none"):
        return None
    if isinstance(value, str) and value == "auto":
        return "auto"
    given = value
    if isinstance(value, str):
        sides = [parse_integer(each) for each in value.lower().split("x")]
        given = sides[0] if len(sides) == 1 else tuple(sides)
    if is_whole(given):
        return int(given)
    if isinstance(given, (tuple, list)) and len(given) == 2 and all(map(is_whole, given)):
        return int(given[0]), int(given[1])
    hint = suggest(value, ("auto", "none")) if isinstance(value, str) else ""
    raise InputError(
        "tiles: expected auto, none, SIZE in pixels or COLUMNSxROWS such as 4x3, "
        f"got {brief(value)}.{hint}"
    )
