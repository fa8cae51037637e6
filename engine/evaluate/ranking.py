"""The detections of one class from the surest on, each a hit or a miss; what follows from that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array


@dataclass(frozen=True, eq=False)
class Ranking:
    """Detections of one class by falling score, without those that do not count."""

    scores: Array  # (n,) float64
    hits: Array  # (n,) bool: it is the one that found its object
    overlaps: Array  # (n,) float64: with the object that it found, else 0
    places: Array  # (n,) int64: among all detections of all classes
    objects: int  # that have to be found

    @classmethod
    def of(cls, judged: Iterable[Judged], objects: int) -> Ranking:
        parts = list(judged)
        scores, hits, overlaps, places = (
            np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0)])
            for name in ("scores", "hits", "overlaps", "places")
        )
        order = np.argsort(-scores, kind="stable")
        return cls(scores[order], hits[order].astype(bool), overlaps[order], places[order], objects)

    @property
    def recall(self) -> Array:
        """After each detection."""
        return np.cumsum(self.hits) / max(self.objects, 1)

    @property
    def precision(self) -> Array:
        """After each detection."""
        return np.asarray(np.cumsum(self.hits) / np.arange(1, len(self.hits) + 1))

    def envelope(self) -> Array:
        """The best precision at this recall or a greater one."""
        return falling(self.precision)

    def counts(self, threshold: float) -> Counts:
        """What is right and wrong when only scores above `threshold` are believed."""
        believed = self.scores > threshold
        hits = int(self.hits[believed].sum())
        misses = int(believed.sum()) - hits
        return Counts(self.objects, hits, misses, float(self.overlaps[believed].sum()))


@dataclass(frozen=True, eq=False)
class Judged:
    """Detections of one class in one picture, in any order."""

    scores: Array
    hits: Array
    overlaps: Array
    places: Array


@dataclass(frozen=True)
class Counts:
    """Hits and misses at a threshold."""

    objects: int
    true_positives: int
    false_positives: int
    overlap: float  # sum over the true positives

    @classmethod
    def total(cls, parts: Sequence[Counts]) -> Counts:
        return cls(
            sum(part.objects for part in parts),
            sum(part.true_positives for part in parts),
            sum(part.false_positives for part in parts),
            sum(part.overlap for part in parts),
        )

    @property
    def false_negatives(self) -> int:
        return self.objects - self.true_positives

    @property
    def precision(self) -> float:
        return _ratio(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float:
        return _ratio(self.true_positives, self.objects)

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return _ratio(2 * self.precision * self.recall, both)

    @property
    def average_iou(self) -> float:
        """Darknet's: over all that was found, where what is wrong counts as 0."""
        return _ratio(self.overlap, self.true_positives + self.false_positives)


def falling(values: Array) -> Array:
    """The greatest of each value and those after it."""
    return np.asarray(np.maximum.accumulate(values[::-1])[::-1])


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
