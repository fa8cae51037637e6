"""Rules of an evaluation are validated and recorded in the report."""

import json

import numpy as np
import pytest

from engine.errors import InputError
from engine.evaluate.examples import Detections, Example, Objects
from engine.evaluate.score import METHODS, Rules, score
from tests.evaluate.random_examples import named, random_examples


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"method": "cocoo"}, "method: expected coco, voc, voc11, darknet, got 'cocoo'. Did you"),
        ({"match_iou": 0}, "match_iou: expected above 0, at most 1, got 0"),
        ({"match_iou": float("nan")}, "match_iou"),
        ({"threshold": -1}, "threshold: expected a number from 0 to 1, got -1"),
        ({"threshold": 25}, "threshold: expected a number from 0 to 1, got 25. Did you mean 0.25?"),
        ({"threshold": float("inf")}, "threshold"),
        ({"method": "darknet", "points": 12}, "points: expected 0, 11 or 101, got 12"),
        ({"points": 11}, "points: only with the method darknet"),
    ],
)
def test_invalid_choice_is_refused(choice, message):
    with pytest.raises(InputError) as caught:
        Rules(**choice)
    assert message in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_report_is_json_and_names_its_rules(method):
    report = score(random_examples(4), named(4), Rules(method, threshold=0.5))
    document = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (document["method"], document["match_iou"], document["threshold"]) == (method, 0.5, 0.5)
    assert document["method_says"]
    assert document["pictures"] == 12
    counts = document["counts"]
    assert counts["true_positives"] + counts["false_negatives"] == counts["objects"]
    assert sum(each["false_positives"] for each in document["classes"]) == counts["false_positives"]


def test_methods_agree_on_an_unambiguous_case():
    examples = [each for each in random_examples(6, optional=0) if len(each.objects)]
    perfect = [
        type(each)(
            each.image_id, each.size, each.objects,
            type(each.detections).of(each.objects.boxes, [0.9] * len(each.objects),
                                each.objects.class_ids),
        )
        for each in examples
    ]  # fmt: skip
    for method in ("coco", "voc", "voc11"):
        report = score(perfect, named(4), Rules(method))
        assert next(iter(report.summary.values())) == pytest.approx(1)
        assert (report.counts.f1, report.counts.average_iou) == pytest.approx((1, 1))


def test_boxes_may_be_cut_at_the_edges():
    boxes = [[-10, 5, 30, 10], [90, 40, 20, 20], [10, 10, 5, 5], [200, 10, 8, 8], [-9, -9, 200, 99]]
    found = Detections.of(boxes, [0.5] * 5, [0] * 5)
    example = Example(1, (100, 50), Objects.of([], []), found).cut_at_edges()
    assert example.detections.boxes.tolist() == [
        [0, 5, 20, 10],
        [90, 40, 10, 10],
        [10, 10, 5, 5],
        [100, 10, 0, 8],
        [0, 0, 100, 50],
    ]
    np.testing.assert_array_equal(found.boxes, boxes)
