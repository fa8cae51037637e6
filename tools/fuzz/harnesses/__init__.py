"""One file a harness: `seeds()` are the inputs to start from, `run(data)` does what a user would.

A harness may have a `mutate(data, random)` of its own, where chance alone gets nowhere.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from importlib import import_module
from random import Random
from typing import Protocol, cast


class Harness(Protocol):
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]


NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def harness(name: str) -> Harness:
    return cast(Harness, import_module(f"{__name__}.{name}"))


def mutation(of: Harness) -> Callable[[bytes, Random], bytes] | None:
    return cast("Callable[[bytes, Random], bytes] | None", getattr(of, "mutate", None))
