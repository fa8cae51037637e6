"""The magnitudes of a layer's values, and the largest one that int8 should hold."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.plan.int8 import LARGEST

_BINS = 4096
_MOST_VALUES = 1 << 17  # sampled from each array: counting is slow, and more values add little
_CANDIDATES = 96  # number of limits tried to find the least error
_LEAST_SHARE = 0.1  # the smallest limit tried, relative to the largest magnitude


class Histogram:
    """Counts magnitudes in bins, whose width doubles when a larger one arrives."""

    def __init__(self) -> None:
        self.largest = 0.0
        self.infinite_at: int | None = None  # the first array with a value that is not finite
        self._added = 0
        self._width = 0.0  # bin width; 0 until there is a nonzero value
        self._counts = np.zeros(_BINS)

    def add(self, values: Array) -> None:
        largest = float(max(values.max(initial=0), -values.min(initial=0)))
        self._added += 1
        if not np.isfinite(largest):  # NaN, too
            if self.infinite_at is None:
                self.infinite_at = self._added - 1
            return
        self._make_room(largest)
        if not self._width:
            return
        flat = values.reshape(-1)
        sample = np.abs(flat[:: -(-flat.size // _MOST_VALUES)])
        bins = np.minimum((sample / self._width).astype(np.int64), _BINS - 1)
        self._counts += np.bincount(bins, minlength=_BINS)

    def limit(self, method: str) -> float:
        """Return the largest magnitude to hold: "max", "mse" or a percentage such as "99.99%"."""
        if self.infinite_at is not None:
            return float("inf")
        if method == "max" or not self._width:
            return self.largest
        return self._least_error() if method == "mse" else self._percentile(float(method[:-1]))

    def _make_room(self, largest: float) -> None:
        self.largest = max(self.largest, largest)
        if not self._width:
            self._width = largest / (_BINS - 1)
        while self._width and largest >= self._width * _BINS:
            pairs = self._counts.reshape(-1, 2).sum(axis=1)
            self._counts = np.concatenate([pairs, np.zeros(_BINS // 2)])
            self._width *= 2

    def _percentile(self, percent: float) -> float:
        """Return the magnitude that `percent` of the nonzero values do not exceed."""
        counts = self._counts.copy()
        counts[0] = 0  # relu produces many zeros, which any scale represents exactly
        total = np.cumsum(counts)
        if not total[-1]:
            return self.largest
        found = int(np.searchsorted(total, total[-1] * percent / 100))
        return min(self.largest, (found + 1) * self._width)

    def _least_error(self) -> float:
        """Return the limit with the least sum of squared rounding and clipping errors."""
        centres = (np.arange(_BINS) + 0.5) * self._width
        limits = np.linspace(_LEAST_SHARE, 1, _CANDIDATES) * self.largest
        errors = []
        for limit in limits:
            scale = limit / LARGEST
            rounded = np.minimum(np.rint(centres / scale), LARGEST) * scale
            errors.append(float((self._counts * np.square(centres - rounded)).sum()))
        return float(limits[int(np.argmin(errors))])
