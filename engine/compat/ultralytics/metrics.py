"""Metrics: what val() returns, with the attributes of ultralytics."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.evaluate.score import Report


class BoxMetrics:
    """Average precision over all classes, and for each."""

    def __init__(self, report: Report) -> None:
        self._report = report

    @property
    def map(self) -> float:
        """Return the mean average precision over IoU 0.5 to 0.95."""
        return self._of("AP")

    @property
    def map50(self) -> float:
        """Return the mean average precision at IoU 0.5."""
        return self._of("AP50")

    @property
    def map75(self) -> float:
        """Return the mean average precision at IoU 0.75."""
        return self._of("AP75")

    @property
    def maps(self) -> Array:
        """Return the average precision of each class by number, `map` for one without objects."""
        found = [each.average_precision for each in self._report.classes]
        return np.array([self.map if each is None else each for each in found], np.float64)

    def _of(self, name: str) -> float:
        value = self._report.summary.get(name)
        return 0.0 if value is None else value


class Metrics:
    """The report of an evaluation; `report` is the engine's own."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.box = BoxMetrics(report)

    @property
    def results_dict(self) -> dict[str, float | None]:
        return dict(self.report.summary)

    @property
    def confusion_matrix(self) -> Array:
        return self.report.confusion
