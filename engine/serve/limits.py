"""What one request, and all of them together, may cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from engine.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Whatever goes beyond is refused; nothing is allocated for it."""

    queue: int = 64  # pictures that are taken in and not answered
    body_bytes: int = 32 << 20
    pixels: int = 50_000_000  # of one picture
    memory_bytes: int = 1 << 30  # of bodies and decoded pictures, all together
    connections: int = 1000
    idle_seconds: float = 60.0  # of a connection, until the head of the next request is complete
    body_seconds: float = 10.0
    answer_seconds: float = 30.0  # until the client has read it
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise InputError(f"{field.name}: expected a number above 0, got {value!r}")
