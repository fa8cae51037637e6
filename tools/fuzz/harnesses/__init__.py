"""One harness per file: `seeds()` yields initial inputs, `run(data)` does what a user would do.

A harness may have a `mutate(data, random)`, for formats that random changes would only break, and
limits of its own, MAX_SECONDS and MAX_BYTES.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from importlib import import_module
from random import Random
from typing import Protocol, cast

from tools.fuzz.oracle import MAX_BYTES, MAX_SECONDS, Finding, check


class Harness(Protocol):
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]


NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def harness(name: str) -> Harness:
    return cast(Harness, import_module(f"{__name__}.{name}"))


def mutator_of(harness: Harness) -> Callable[[bytes, Random], bytes] | None:
    return cast("Callable[[bytes, Random], bytes] | None", getattr(harness, "mutate", None))


def check_input(harness: Harness, data: bytes) -> Finding | None:
    """Run a harness on one input within its limits and return what is wrong, or None."""
    return check(
        harness.run,
        data,
        max_seconds=getattr(harness, "MAX_SECONDS", MAX_SECONDS),
        max_bytes=getattr(harness, "MAX_BYTES", MAX_BYTES),
    )
