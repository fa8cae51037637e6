"""Score detections by the method of COCO, Pascal VOC or darknet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.arguments import fraction
from engine.arrays import Array
from engine.errors import InputError, suggest
from engine.evaluate import coco, darknet, voc
from engine.evaluate.confusion import confusion
from engine.evaluate.examples import Example, split_by_class
from engine.evaluate.ranking import Counts, Ranking

METHODS = {
    "coco": "COCO, 101 recalls, IoU 0.50 to 0.95, at most 100 detections of a class",
    "voc": "Pascal VOC 2010, area under the curve",
    "voc11": "Pascal VOC 2007, 11 recalls",
    "darknet": "darknet's detector map",
}
_RANK = {"coco": coco.rank, "voc": voc.rank, "voc11": voc.rank, "darknet": darknet.rank}


@dataclass(frozen=True)
class Rules:
    """The settings of an evaluation, validated."""

    method: str = "coco"
    match_iou: float = 0.5
    threshold: float = 0.25  # score threshold for the counts and the confusion matrix
    points: int = 0  # recalls at which darknet's curve is read; 0 is the area under it

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            hint = suggest(self.method, METHODS)
            raise InputError(f"method: expected {', '.join(METHODS)}, got {self.method!r}.{hint}")
        if not 0 < self.match_iou <= 1:
            raise InputError(f"match_iou: expected above 0, at most 1, got {self.match_iou}")
        fraction("threshold", self.threshold)
        if self.points not in darknet.POINTS:
            raise InputError(f"points: expected 0, 11 or 101, got {self.points}")
        if self.points and self.method != "darknet":
            raise InputError("points: only with the method darknet")

    def __str__(self) -> str:
        if self.method != "darknet":
            return METHODS[self.method]
        reading = f"{self.points} points" if self.points else "area under the curve"
        return f"{METHODS['darknet']}, {reading}"


@dataclass(frozen=True, eq=False)
class ClassScore:
    """The scores of a class. A class without objects has None as its average precisions.

    COCO's `average_precision` is the mean over ten IoU thresholds; `average_precision_at_iou` is
    the one at `match_iou`, by the same method, and the area under the curve of `ranking`.
    """

    name: str
    average_precision: float | None
    average_precision_at_iou: float | None
    ranking: Ranking
    counts: Counts
    pictures: int  # number of pictures with the class


@dataclass(frozen=True, eq=False)
class Report:
    """The result of score(); the first figure of `summary` is the main one of the method."""

    rules: Rules
    pictures: int
    summary: dict[str, float | None]
    classes: tuple[ClassScore, ...]
    confusion: Array  # see engine.evaluate.confusion

    @property
    def counts(self) -> Counts:
        return Counts.total([each.counts for each in self.classes])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "method": self.rules.method,
            "method_says": str(self.rules),
            "match_iou": self.rules.match_iou,
            "threshold": self.rules.threshold,
            "pictures": self.pictures,
            "summary": self.summary,
            "counts": _counts(self.counts),
            "classes": [
                {
                    "class_id": class_id,
                    "name": each.name,
                    "average_precision": each.average_precision,
                    "average_precision_at_iou": each.average_precision_at_iou,
                    "pictures": each.pictures,
                    **_counts(each.counts),
                }
                for class_id, each in enumerate(self.classes)
            ],
            "confusion": self.confusion.tolist(),
        }


def score(examples: Sequence[Example], names: Sequence[str], rules: Rules | None = None) -> Report:
    """Score the detections in `examples` by `rules`."""
    rules = rules or Rules()
    classes = split_by_class(examples, len(names))
    iou, threshold = rules.match_iou, rules.threshold
    rank = _RANK[rules.method]
    rankings = [rank(of_class, iou) for of_class in classes]
    counts = [ranking.counts(threshold) for ranking in rankings]
    precisions: Sequence[float | None]
    at_iou: Sequence[float | None]
    if rules.method == "coco":
        tables = coco.tables(classes)
        precisions = [tables.of_class(class_id) for class_id in range(len(names))]
        at_iou = [coco.at_iou(ranking) for ranking in rankings]
        summary = tables.summary()
    else:
        if rules.method == "darknet":
            precisions = darknet.average_precisions(rankings, rules.points)
            counts = [darknet.counts(of_class, iou, threshold) for of_class in classes]
        else:
            average = voc.eleven_points if rules.method == "voc11" else voc.area
            precisions = [average(ranking) for ranking in rankings]
        at_iou = precisions
        summary = {f"mAP@{iou:.2f}": _mean(precisions)}
    pictures = [sum(len(each.objects) > 0 for each in of_class) for of_class in classes]
    columns = zip(names, precisions, at_iou, rankings, counts, pictures, strict=True)
    return Report(
        rules,
        pictures=len(examples),
        summary=summary,
        classes=tuple(ClassScore(*column) for column in columns),
        confusion=confusion(examples, len(names), iou_threshold=iou, threshold=threshold),
    )


def _mean(precisions: Sequence[float | None]) -> float | None:
    known = [each for each in precisions if each is not None]
    return float(np.mean(known)) if known else None


def _counts(counts: Counts) -> dict[str, float]:
    return {
        "objects": counts.objects,
        "true_positives": counts.true_positives,
        "false_positives": counts.false_positives,
        "false_negatives": counts.false_negatives,
        "precision": counts.precision,
        "recall": counts.recall,
        "f1": counts.f1,
        "average_iou": counts.average_iou,
    }
