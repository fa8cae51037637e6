"""The curves of a report: precision over recall, and the counts over the score threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.evaluate.plot import Line, Plot, short
from engine.evaluate.ranking import Ranking
from engine.evaluate.score import ClassScore, Report
from engine.vision.colours import Colour, colour_of

GRID = np.linspace(0, 1, 1001)  # recalls and score thresholds
_MEAN_COLOUR, _OTHER_COLOUR = (20, 20, 20), (205, 205, 205)
# Not the colours of classes on pictures, which are too similar for lines that cross.
_NAMED_COLOURS: tuple[Colour, ...] = (
    *((31, 111, 191), (230, 120, 20), (40, 150, 60), (205, 45, 45), (130, 90, 185)),
    *((140, 85, 65), (225, 100, 180), (110, 110, 110), (175, 170, 20), (20, 175, 190)),
)


@dataclass(frozen=True)
class ScoreCurves:
    """Precision, recall and F1 at each score threshold of GRID."""

    precision: Array
    recall: Array
    f1: Array

    @classmethod
    def of(cls, ranking: Ranking) -> ScoreCurves:
        above = np.searchsorted(-ranking.scores, -GRID, side="left")  # scores above a threshold
        hits = np.append(0, np.cumsum(ranking.hits))[above]
        recall = hits / max(ranking.objects, 1)
        precision = np.divide(hits, above, out=np.zeros(len(GRID)), where=above > 0)
        total = precision + recall
        f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(GRID)), where=total > 0)
        return cls(precision, recall, f1)


def best_threshold(report: Report) -> tuple[float, float] | None:
    """Return the score threshold with the best mean F1 of the classes, and that F1."""
    curves = [ScoreCurves.of(each.ranking).f1 for each in report.classes if each.ranking.objects]
    if not curves:
        return None
    mean = np.mean(curves, axis=0)
    best = int(mean.argmax())
    return float(GRID[best]), float(mean[best])


def precision_recall(report: Report) -> Plot:
    classes = _with_objects(report)
    envelopes = [_precision_at(each.ranking) for _, each in classes]
    lines = _lines(
        classes,
        lambda each: _steps(each.ranking),
        np.mean(envelopes, axis=0) if envelopes else None,
        lambda each: each.average_precision_at_iou,
        lambda mean: float(np.mean([each.average_precision_at_iou or 0.0 for _, each in classes])),
    )
    return Plot("recall", f"precision at an IoU of {report.rules.match_iou:.2f}", lines)


def over_score(report: Report, name: str) -> Plot:
    """Return the plot of "precision", "recall" or "f1" over the score threshold."""
    classes = _with_objects(report)
    curves = {class_id: ScoreCurves.of(each.ranking) for class_id, each in classes}
    values = [getattr(each, name) for each in curves.values()]
    mean = np.mean(values, axis=0) if values else None
    by_class = {id(each): getattr(curves[class_id], name) for class_id, each in classes}
    lines = _lines(
        classes,
        lambda each: (GRID, by_class[id(each)]),
        mean,
        lambda each: float(by_class[id(each)].max()),
        lambda mean: float(mean.max()),
    )
    notes, mark = [], None
    if best := best_threshold(report):
        mark, value = best
        notes = [f"best mean F1: {value:.3f}", f"at a threshold of {mark:.3f}"]
    title = {"f1": "F1"}.get(name, name)
    where = f"{title} at an IoU of {report.rules.match_iou:.2f}; the legend has the maximum"
    return Plot("score threshold", where, lines, notes, mark)


def of_class(report: Report, class_id: int) -> Plot:
    each = report.classes[class_id]
    line = Line(*_steps(each.ranking), colour_of(class_id), _label(each.name, _ap(each)))
    return Plot("recall", f"precision at an IoU of {report.rules.match_iou:.2f}", [line])


def _with_objects(report: Report) -> list[tuple[int, ClassScore]]:
    return [(at, each) for at, each in enumerate(report.classes) if each.ranking.objects]


def _lines(
    classes: Sequence[tuple[int, ClassScore]],
    points: Callable[[ClassScore], tuple[Array, Array]],
    mean: Array | None,
    value: Callable[[ClassScore], float | None],
    value_of_mean: Callable[[Array], float],
) -> list[Line]:
    """Return the mean, the classes with the most objects by descending value, then the others."""
    frequent = sorted(classes, key=lambda item: -item[1].ranking.objects)
    most = len(_NAMED_COLOURS)
    # a class has the same colour in every plot, regardless of its place in the legend
    coloured = zip(_NAMED_COLOURS, frequent[:most], strict=False)
    named = sorted(coloured, key=lambda item: -(value(item[1][1]) or 0.0))
    others = frequent[most:]
    lines = []
    if mean is not None:
        label = _label(f"mean of {len(classes)}", value_of_mean(mean))
        lines.append(Line(GRID, mean, _MEAN_COLOUR, label, width=3))
    lines += [
        Line(*points(each), colour, _label(each.name, value(each))) for colour, (_, each) in named
    ]
    lines += _grey(points(each) for _, each in others)
    return lines


def _grey(others: Iterable[tuple[Array, Array]]) -> list[Line]:
    grey: Colour = _OTHER_COLOUR
    lines = [Line(*each, grey, width=1) for each in others]
    if lines:
        lines[0] = Line(lines[0].x, lines[0].y, grey, f"{len(lines)} other classes", width=1)
    return lines


def _label(name: str, value: float | None) -> str:
    return f"{short(name)}  {value or 0.0:.3f}"


def _ap(each: ClassScore) -> float | None:
    return each.average_precision_at_iou


def _steps(ranking: Ranking) -> tuple[Array, Array]:
    """Return the curve whose area is the average precision: the envelope, down to 0 at its end."""
    if not len(ranking.scores):
        return np.zeros(2), np.zeros(2)
    recall, precision = ranking.recall, ranking.envelope()
    x = np.concatenate([[0.0], np.repeat(recall, 2)])
    y = np.concatenate([np.repeat(precision, 2), [0.0]])
    return x, y


def _precision_at(ranking: Ranking) -> Array:
    return ranking.precision_at(GRID)
