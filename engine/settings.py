"""The settings of results."""

from __future__ import annotations

from dataclasses import dataclass

from engine.arguments import fraction, whole

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

    def __post_init__(self) -> None:
        made = self.__dict__  # the fields of a frozen instance
        for name in ("threshold", "nms", "hierarchy"):
            made[name] = fraction(name, made[name])
        made["top_k"] = whole("top_k", self.top_k)
        made["batch"] = whole("batch", self.batch, most=_LARGEST_BATCH)
        if self.max_detections is not None:
            made["max_detections"] = whole("max_detections", self.max_detections)
