"""A cache of one network's detectors, loaded with different options such as sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from engine.concurrency import fork_safety
from engine.detector import Detector

MOST = 3  # detectors kept: for whole pictures, for details in them, and one more


class Detectors:
    """The detectors of the latest few sets of options; thread-safe.

    An evicted detector is freed once no call or stream uses it.
    """

    def __init__(self, load: Callable[..., Detector]) -> None:
        self._load = load
        self._kept: list[tuple[dict[str, Any], Detector]] = []  # latest last
        self._open: WeakSet[Detector] = WeakSet()
        self._lock = fork_safety.lock(outer=True)

    def get(self, options: dict[str, Any]) -> Detector:
        """Return the detector that was loaded with these options, or load it."""
        with self._lock:
            for number, (known, detector) in enumerate(self._kept):
                if known == options:
                    self._kept.append(self._kept.pop(number))
                    return detector
            del self._kept[: 1 - MOST]  # before the next one takes memory
            made = self._load(**options)
            self._open.add(made)
            self._kept.append((options, made))
            return made

    def find(self, options: Mapping[str, Any]) -> Detector | None:
        """Return the latest detector with these options, whatever the others are."""
        with self._lock:
            return next(
                (each for known, each in self._kept[::-1] if options.items() <= known.items()),
                None,
            )

    def forget(self) -> None:
        """Drop all detectors; running calls may still use theirs."""
        with self._lock:
            self._kept.clear()

    def close(self) -> None:
        """Free all detectors, even those that calls and streams use."""
        with self._lock:
            self._kept.clear()
            for each in list(self._open):
                each.close()
            self._open.clear()
