"""What may be chosen about results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import InputError


@dataclass(frozen=True)
class Settings:
    """What may be chosen about results, checked."""

    threshold: float = 0.25
    nms: float = 0.45
    hierarchy: float = 0.5
    top_k: int = 5
    batch: int = 1
    max_detections: int | None = None
    classes: tuple[int, ...] | None = None  # the only ones that count

    def __post_init__(self) -> None:
        for name in ("threshold", "nms", "hierarchy"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 <= value < math.inf):
                raise InputError(f"{name}: expected a number of 0 or more, got {value!r}")
        for name in ("top_k", "batch"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1):
                raise InputError(f"{name}: expected an integer of 1 or more, got {value!r}")
        most = self.max_detections
        if not (most is None or (isinstance(most, int) and most >= 1)):
            raise InputError(f"max_detections: expected an integer of 1 or more, got {most!r}")
