"""Limits on the resources that requests may use."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from engine.errors import InputError
from engine.serve.rejection import RejectedError

_MAX_PICTURES = 1024  # per request, regardless of the queue


@dataclass(frozen=True)
class ServerLimits:
    """Bounds on one request and on all requests together.

    A request beyond a bound is refused before memory is allocated for it.
    """

    queue: int = 64  # accepted pictures that have no response yet
    body_bytes: int = 32 << 20
    pixels: int = 50_000_000  # in one picture
    tiles: int = 256  # per picture
    memory_bytes: int = 1 << 30  # bodies and decoded pictures of all requests
    connections: int = 1000
    idle_seconds: float = 60.0  # until the head of the next request is complete
    body_seconds: float = 10.0
    response_seconds: float = 30.0  # until the client has read the response
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise InputError(f"{field.name}: expected a number above 0, got {value!r}")


def check_count(pictures: int) -> None:
    """Raise if a request has more pictures than any request may have."""
    if pictures > _MAX_PICTURES:
        raise RejectedError(413, f"pictures: expected at most {_MAX_PICTURES}, got {pictures}")
