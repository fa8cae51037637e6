"""Metrics: what val() returns, with the attributes of ultralytics."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.concurrency.cached_property import cached_property
from engine.evaluate.curves import ScoreCurves
from engine.evaluate.score import ClassScore, Report


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
        """Return the average precision of each class by number; `map` if it has no objects."""
        found = [each.average_precision for each in self._report.classes]
        return np.array([self.map if each is None else each for each in found], np.float64)

    @property
    def mp(self) -> float:
        """Return the mean precision at the score with the best mean F1, at IoU 0.5."""
        return float(self.p.mean()) if self.p.size else 0.0

    @property
    def mr(self) -> float:
        """Return the mean recall at that score."""
        return float(self.r.mean()) if self.r.size else 0.0

    @property
    def ap_class_index(self) -> Array:
        """Return the numbers of the classes with objects, in the order of the arrays below."""
        return np.flatnonzero([each.ranking.objects for each in self._report.classes])

    @property
    def p(self) -> Array:
        """Return the precision of each class at the score with the best mean F1."""
        return self._at_best_score[0]

    @property
    def r(self) -> Array:
        """Return the recall of each class at that score."""
        return self._at_best_score[1]

    @property
    def f1(self) -> Array:
        """Return the F1 of each class at that score."""
        return self._at_best_score[2]

    @property
    def ap(self) -> Array:
        """Return the average precision of each class over IoU 0.5 to 0.95."""
        return np.array([each.average_precision for each in self._classes], np.float64)

    @property
    def ap50(self) -> Array:
        """Return the average precision of each class at IoU 0.5."""
        return np.array([each.average_precision_at_iou for each in self._classes], np.float64)

    def mean_results(self) -> list[float]:
        """Return mean precision, recall, and average precision at IoU 0.5 and over all IoUs."""
        return [self.mp, self.mr, self.map50, self.map]

    def class_result(self, i: int) -> tuple[float, float, float, float]:
        """Return the same figures for the class at index i of ap_class_index."""
        p, r, ap50, ap = (float(each[i]) for each in (self.p, self.r, self.ap50, self.ap))
        return p, r, ap50, ap

    @property
    def _classes(self) -> list[ClassScore]:
        return [self._report.classes[each] for each in self.ap_class_index]

    @cached_property
    def _at_best_score(self) -> tuple[Array, Array, Array]:
        """Return precision, recall and F1 of each class with objects."""
        curves = [ScoreCurves.of(each.ranking) for each in self._classes]
        if not curves:
            return np.zeros(0), np.zeros(0), np.zeros(0)
        best = int(np.mean([each.f1 for each in curves], axis=0).argmax())
        at_best = [(each.precision[best], each.recall[best], each.f1[best]) for each in curves]
        p, r, f1 = np.array(at_best).T
        return p, r, f1

    def _of(self, name: str) -> float:
        value = self._report.summary.get(name)
        return 0.0 if value is None else value


class Metrics:
    """The report of an evaluation; `report` is the engine's own."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.box = BoxMetrics(report)

    @property
    def names(self) -> dict[int, str]:
        """Return the names of the classes by number."""
        return {number: each.name for number, each in enumerate(self.report.classes)}

    @property
    def maps(self) -> Array:
        return self.box.maps

    @property
    def ap_class_index(self) -> Array:
        return self.box.ap_class_index

    def mean_results(self) -> list[float]:
        return self.box.mean_results()

    def class_result(self, i: int) -> tuple[float, float, float, float]:
        return self.box.class_result(i)

    @property
    def results_dict(self) -> dict[str, float]:
        """Return the main figures under ultralytics' names."""
        names = ("precision", "recall", "mAP50", "mAP50-95")
        return {
            f"metrics/{name}(B)": value
            for name, value in zip(names, self.mean_results(), strict=True)
        }

    @property
    def confusion_matrix(self) -> Array:
        return self.report.confusion
