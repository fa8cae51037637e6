"""Metrics name the numbers of a report as ultralytics does; test_model.py has an evaluation."""

from types import SimpleNamespace

from engine.compat.ultralytics import Metrics


def test_numbers():
    classes = [SimpleNamespace(average_precision=each) for each in (0.5, None, 0.3)]
    report = SimpleNamespace(
        summary={"AP": 0.4, "AP50": 0.8, "AP75": None}, classes=classes, confusion=[[1]]
    )
    metrics = Metrics(report)
    assert (metrics.box.map, metrics.box.map50, metrics.box.map75) == (0.4, 0.8, 0.0)
    assert metrics.box.maps.tolist() == [0.5, 0.4, 0.3]
    assert metrics.results_dict == report.summary
    assert metrics.confusion_matrix == [[1]]
