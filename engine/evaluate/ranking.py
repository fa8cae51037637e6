"""The ranked detections of one class: hits and misses, precision and recall."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array


@dataclass(frozen=True, eq=False)
class Ranking:
    """Detections of one class by descending score, without ignored ones."""

    scores: Array  # (n,) float64
    hits: Array  # (n,) bool: true positives
    overlaps: Array  # (n,) float64: IoU with the object found, 0 for a miss
    indices: Array  # (n,) int64: among all detections of all classes
    objects: int  # the number of objects to find

    @classmethod
    def of(cls, matches: Iterable[MatchedDetections], objects: int) -> Ranking:
        parts = list(matches)
        scores, hits, overlaps, indices = (
            np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0)])
            for name in ("scores", "hits", "overlaps", "indices")
        )
        order = np.argsort(-scores, kind="stable")
        return cls(
            scores[order], hits[order].astype(bool), overlaps[order], indices[order], objects
        )

    @property
    def recall(self) -> Array:
        """Return the recall after each detection."""
        return np.cumsum(self.hits) / max(self.objects, 1)

    @property
    def precision(self) -> Array:
        """Return the precision after each detection."""
        return np.asarray(np.cumsum(self.hits) / np.arange(1, len(self.hits) + 1))

    def envelope(self) -> Array:
        """Return the best precision at or beyond the recall of each detection."""
        return falling_envelope(self.precision)

    def precision_at(self, recalls: Array) -> Array:
        """Return the best precision at or beyond each of the recalls."""
        envelope = np.append(self.envelope(), 0.0)
        return envelope[np.searchsorted(self.recall, recalls, side="left")]

    def counts(self, threshold: float) -> Counts:
        """Count hits and misses among the scores above `threshold`."""
        above = self.scores > threshold
        hits = int(self.hits[above].sum())
        misses = int(above.sum()) - hits
        return Counts(self.objects, hits, misses, float(self.overlaps[above].sum()))


@dataclass(frozen=True, eq=False)
class MatchedDetections:
    """The detections of one class in one picture after matching, in any order."""

    scores: Array
    hits: Array
    overlaps: Array
    indices: Array


@dataclass(frozen=True)
class Counts:
    """Hits and misses at a score threshold."""

    objects: int
    true_positives: int
    false_positives: int
    overlap: float  # sum of IoUs over the true positives

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
        """Return darknet's average IoU over all detections, in which a miss counts as 0."""
        return _ratio(self.overlap, self.true_positives + self.false_positives)


def falling_envelope(values: Array) -> Array:
    """Replace each value by the maximum of itself and all later ones."""
    return np.asarray(np.maximum.accumulate(values[::-1])[::-1])


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
