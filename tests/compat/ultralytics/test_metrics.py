"""Metrics name the numbers of a report as ultralytics does; test_model.py has an evaluation."""

from types import SimpleNamespace

from engine.compat.ultralytics import Metrics


def test_numbers():
    classes = (SimpleNamespace(name="cat", average_precision=0.5),)
    report = SimpleNamespace(
        summary={"AP": 0.4, "AP50": 0.8, "AP75": None}, classes=classes, confusion=[[1]]
    )
    metrics = Metrics(report)
    assert (metrics.box.map, metrics.box.map50, metrics.box.map75) == (0.4, 0.8, 0.0)
    assert metrics.box.maps == {"cat": 0.5}
    assert metrics.results_dict == report.summary
    assert metrics.confusion_matrix == [[1]]
