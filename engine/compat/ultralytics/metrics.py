"""Metrics: what val() returns, with the attributes of ultralytics."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from engine.arrays import Array
from engine.evaluate.curves import ScoreCurves
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

    @property
    def mp(self) -> float:
        """Return the mean precision at the score with the best mean F1, at IoU 0.5."""
        return self._at_best_score[0]

    @property
    def mr(self) -> float:
        """Return the mean recall at that score."""
        return self._at_best_score[1]

    @cached_property
    def _at_best_score(self) -> tuple[float, float]:
        rankings = [each.ranking for each in self._report.classes if each.ranking.objects]
        if not rankings:
            return 0.0, 0.0
        curves = [ScoreCurves.of(each) for each in rankings]
        best = int(np.mean([each.f1 for each in curves], axis=0).argmax())
        precision = np.mean([each.precision[best] for each in curves])
        return float(precision), float(np.mean([each.recall[best] for each in curves]))

    def _of(self, name: str) -> float:
        value = self._report.summary.get(name)
        return 0.0 if value is None else value


class Metrics:
    """The report of an evaluation; `report` is the engine's own."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.box = BoxMetrics(report)

    @property
    def results_dict(self) -> dict[str, float]:
        """Return the main figures under ultralytics' names."""
        return {
            "metrics/precision(B)": self.box.mp,
            "metrics/recall(B)": self.box.mr,
            "metrics/mAP50(B)": self.box.map50,
            "metrics/mAP50-95(B)": self.box.map,
        }

    @property
    def confusion_matrix(self) -> Array:
        return self.report.confusion
