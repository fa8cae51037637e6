"""The settings of results."""

from __future__ import annotations

from dataclasses import dataclass

from engine.arguments import check_kind, fraction, whole

_LOWEST_READ = 0.1  # the score above which a box is read, whatever the threshold
_LARGEST_BATCH = 2**31 - 1  # a larger batch overflows 32-bit row counts


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

    def __post_init__(self) -> None:
        made = self.__dict__  # the fields of a frozen instance
        for name in ("threshold", "nms", "hierarchy"):
            made[name] = fraction(name, made[name])
        made["top_k"] = whole("top_k", self.top_k)
        made["batch"] = whole("batch", self.batch, most=_LARGEST_BATCH)
        if self.max_detections is not None:
            made["max_detections"] = whole("max_detections", self.max_detections)
        check_kind("read", self.read, bool, "True or False")

    @property
    def lowest_score(self) -> float:
        """The score above which the network's boxes are needed: a text proves a box of less."""
        return min(self.threshold, _LOWEST_READ) if self.read else self.threshold

    @property
    def most_boxes(self) -> int | None:
        """The number of the network's boxes that are needed: reading adds and drops some."""
        return None if self.read else self.max_detections
