"""Metrics name the numbers of a report as ultralytics does; test_model.py has an evaluation."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine.compat.ultralytics import Metrics
from engine.evaluate.ranking import Ranking


def _ranking(scores, hits, objects):
    return Ranking(scores, hits, np.zeros(len(scores)), np.arange(len(scores)), objects)


def test_numbers():
    # At a score of 0.6 class 0 has 2 hits of 3 and class 2 1 of 1; 4 and 1 objects are there.
    rankings = [
        _ranking(np.array([0.9, 0.8, 0.6]), np.array([True, False, True]), 4),
        _ranking(np.array([0.7]), np.array([False]), 0),
        _ranking(np.array([0.6, 0.1]), np.array([True, False]), 1),
    ]
    classes = [
        SimpleNamespace(
            name=name,
            average_precision=average,
            average_precision_at_iou=average and 2 * average,
            ranking=ranking,
        )
        for name, average, ranking in zip("abc", (0.5, None, 0.3), rankings, strict=True)
    ]
    report = SimpleNamespace(
        summary={"AP": 0.4, "AP50": 0.8, "AP75": None}, classes=classes, confusion=[[1]]
    )
    metrics = Metrics(report)
    assert (metrics.box.map, metrics.box.map50, metrics.box.map75) == (0.4, 0.8, 0.0)
    assert metrics.box.maps.tolist() == [0.5, 0.4, 0.3]
    assert (metrics.box.mp, metrics.box.mr) == (pytest.approx(5 / 6), 0.75)
    assert metrics.results_dict == {
        "metrics/precision(B)": metrics.box.mp,
        "metrics/recall(B)": metrics.box.mr,
        "metrics/mAP50(B)": 0.8,
        "metrics/mAP50-95(B)": 0.4,
    }
    assert metrics.confusion_matrix == [[1]]
    assert metrics.names == {0: "a", 1: "b", 2: "c"}
    assert metrics.ap_class_index.tolist() == [0, 2]
    assert metrics.box.ap.tolist() == [0.5, 0.3]
    assert metrics.box.f1.tolist() == [pytest.approx(4 / 7), 1]
    assert metrics.class_result(0) == (pytest.approx(2 / 3), 0.5, 1, 0.5)
    assert metrics.mean_results() == [metrics.box.mp, metrics.box.mr, 0.8, 0.4]
    assert metrics.maps.tolist() == metrics.box.maps.tolist()


def test_classes_without_objects_have_no_figures():
    nothing = _ranking(np.array([0.7]), np.array([False]), 0)
    report = SimpleNamespace(summary={}, classes=[SimpleNamespace(name="a", ranking=nothing)])
    box = Metrics(report).box
    assert box.ap_class_index.size == box.p.size == box.r.size == box.ap50.size == 0
    assert box.mean_results() == [0, 0, 0, 0]
