"""Pascal VOC's metrics agree with a second, plain implementation."""

import numpy as np
import pytest

from engine.evaluate.examples import Detections, Example, Objects
from engine.evaluate.score import Rules, score
from tests.evaluate.random_examples import named, random_examples
from tests.evaluate.real_examples import real_examples


def overlap_of_pixels(a, b):
    """Return the IoU of boxes whose last pixel is inclusive, as in VOC's files."""
    wide = min(a[2], b[2]) - max(a[0], b[0]) + 1
    tall = min(a[3], b[3]) - max(a[1], b[1]) + 1
    if wide <= 0 or tall <= 0:
        return 0.0
    areas = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (a, b)]
    return wide * tall / (sum(areas) - wide * tall)


def in_pixels(box):
    left, top, width, height = box
    return left + 1, top + 1, left + width, top + height


def plain_reading(examples, class_id, least):
    """Return recall and precision after each detection of a class."""
    detections, objects = [], {}
    for place, example in enumerate(examples):
        there, found = example.objects, example.detections
        objects[place] = [
            {"box": in_pixels(box), "difficult": bool(optional), "used": False}
            for box, each, optional in zip(
                there.boxes, there.class_ids, there.optional, strict=True
            )
            if each == class_id
        ]
        detections += [
            (score, place, in_pixels(box))
            for box, score, each in zip(found.boxes, found.scores, found.class_ids, strict=True)
            if each == class_id
        ]
    positives = sum(not each["difficult"] for group in objects.values() for each in group)
    hits, misses, curve = 0, 0, []
    for _, place, box in sorted(detections, key=lambda detection: -detection[0]):
        best, most = None, -1.0
        for candidate in objects[place]:
            overlap = overlap_of_pixels(box, candidate["box"])
            if overlap > most:
                best, most = candidate, overlap
        if best is not None and most >= least:
            if best["difficult"]:
                continue
            hits, misses = (hits, misses + 1) if best["used"] else (hits + 1, misses)
            best["used"] = True
        else:
            misses += 1
        curve.append((hits / positives if positives else 0, hits / (hits + misses)))
    return positives, curve


def plain_area(curve):
    total, before = 0.0, 0.0
    for place, (recall, _) in enumerate(curve):
        total += (recall - before) * max(precision for _, precision in curve[place:])
        before = recall
    return total


def plain_eleven_points(curve):
    best = [max((p for r, p in curve if r >= tenth * 0.1), default=0.0) for tenth in range(11)]
    return sum(best) / 11


@pytest.mark.parametrize(
    ("method", "average"), [("voc", plain_area), ("voc11", plain_eleven_points)]
)
@pytest.mark.parametrize("least", [0.3, 0.5, 0.75])
@pytest.mark.parametrize("seed", range(3))
def test_random_detections_match_the_plain_implementation(method, average, least, seed):
    examples = random_examples(seed, pictures=20)
    report = score(examples, named(5), Rules(method, match_iou=least))
    expected = []
    for class_id, each in enumerate(report.classes):
        positives, curve = plain_reading(examples, class_id, least)
        assert each.ranking.objects == positives
        if positives:
            expected.append(average(curve))
            assert each.average_precision == pytest.approx(expected[-1], abs=1e-9)
        else:
            assert each.average_precision is None
    assert report.summary == {f"mAP@{least:.2f}": pytest.approx(np.mean(expected), abs=1e-9)}


def test_recall_of_three_tenths_does_not_reach_the_third_point():
    """VOC's code behaves alike: its points are binary multiples of 0.1."""
    boxes = np.array([[100 * place, 0, 50, 50] for place in range(10)], float)
    kinds = np.zeros(10, int)
    objects = Objects(boxes, kinds, np.zeros(10, bool), np.zeros(10, bool))
    example = Example(
        1, (1000, 50), objects, Detections(boxes[:3], np.array([0.9, 0.8, 0.7]), kinds[:3])
    )
    report = score([example], named(1), Rules("voc11"))
    assert report.classes[0].average_precision == pytest.approx(3 / 11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "average"), [("voc", plain_area), ("voc11", plain_eleven_points)]
)
def test_real_detections_match_the_plain_implementation(method, average):
    examples, names = real_examples()
    for class_id, each in enumerate(score(examples, names, Rules(method)).classes):
        positives, curve = plain_reading(examples, class_id, 0.5)
        expected = average(curve) if positives else None
        assert each.average_precision == (expected and pytest.approx(expected, abs=1e-9))


def test_second_detection_is_false_and_of_a_difficult_object_is_ignored():
    there = Objects.of([[0, 0, 10, 10], [50, 50, 10, 10]], [0, 0], optional=[False, True])
    found = Detections.of(
        [[0, 0, 10, 10], [0, 1, 10, 10], [50, 50, 10, 10]], [0.9, 0.8, 0.7], [0] * 3
    )
    report = score([Example(1, (100, 100), there, found)], ["thing"], Rules("voc"))
    counts = report.counts
    assert (counts.true_positives, counts.false_positives, counts.false_negatives) == (1, 1, 0)
    assert (counts.precision, counts.recall) == (0.5, 1)
    assert counts.f1 == pytest.approx(2 / 3)
    assert counts.average_iou == 0.5  # one of 1.0 over two that were found


def test_detections_at_the_threshold_do_not_count():
    there = Objects.of([[0, 0, 10, 10]], [0])
    found = Detections.of([[0, 0, 10, 10]], [0.25], [0])
    report = score([Example(1, (100, 100), there, found)], ["thing"], Rules("voc", threshold=0.25))
    assert (report.counts.true_positives, report.counts.false_negatives) == (0, 1)
    assert report.summary == {"mAP@0.50": 1}
