"""The method `darknet` agrees with darknet's `detector map`."""

import numpy as np
import pytest

from engine.evaluate import darknet
from engine.evaluate.examples import Detections, Example, Objects
from engine.evaluate.score import Rules, score
from engine.vision.boxes import Suppression
from engine.vision.result import Result
from engine.vision.rows import boxes_of, suppress_rows
from tests.evaluate.random_examples import named, random_examples

FLOAT = np.float32


def relative(box, size):
    left, top, width, height = (each / size[place % 2] for place, each in enumerate(box))
    return tuple(map(FLOAT, (left + width / 2, top + height / 2, width, height)))


def overlap(a, b):
    def common(x, w, other_x, other_w):
        half, other_half = w / FLOAT(2), other_w / FLOAT(2)
        return min(x + half, other_x + other_half) - max(x - half, other_x - other_half)

    wide, tall = common(a[0], a[2], b[0], b[2]), common(a[1], a[3], b[1], b[3])
    if wide < 0 or tall < 0 or wide * tall == 0:
        return FLOAT(0)
    return (wide * tall) / (a[2] * a[3] + b[2] * b[3] - wide * tall)


def map_of(examples, classes, *, least, threshold, points):
    """Compute average precisions, their mean and the counts at a threshold in loops."""
    detections, owners, truths = [], 0, [0] * classes
    hits, misses, shared = [0] * classes, [0] * classes, 0.0
    for example in examples:
        there, found = example.objects, example.detections
        rows = list(zip(there.boxes, there.class_ids, there.optional, strict=True))
        plain = [(relative(box, example.size), each) for box, each, hard in rows if not hard]
        difficult = [(relative(box, example.size), each) for box, each, hard in rows if hard]
        for _, each in plain:
            truths[each] += 1
        seen = []
        for box, probability, class_id in zip(
            found.boxes, found.scores, found.class_ids, strict=True
        ):
            parts, owner, most = relative(box, example.size), -1, FLOAT(0)
            for number, (truth, each) in enumerate(plain):
                value = overlap(parts, truth)
                if value > FLOAT(least) and each == class_id and value > most:
                    owner, most = owners + number, value
            covers_difficult = any(
                overlap(parts, truth) > FLOAT(least) and each == class_id
                for truth, each in difficult
            )
            if FLOAT(probability) > FLOAT(threshold):
                if owner >= 0 and owner not in seen:
                    hits[class_id] += 1
                    shared += float(most)
                else:
                    misses[class_id] += 1
            seen.append(owner)
            if owner >= 0 or not covers_difficult:
                detections.append((probability, class_id, owner))
        owners += len(plain)
    detections.sort(key=lambda each: -each[0])
    curves = [[] for _ in range(classes)]
    right, wrong, used = [0] * classes, [0] * classes, set()
    for _, class_id, owner in detections:
        if owner >= 0 and owner not in used:
            used.add(owner)
            right[class_id] += 1
        else:
            wrong[class_id] += 1
        for each in range(classes):
            believed = right[each] + wrong[each]
            curves[each].append(
                (
                    right[each] / believed if believed else 0.0,
                    right[each] / truths[each] if truths[each] else 0.0,
                )
            )
    averages = [average_of(curve, points) for curve in curves]
    return averages, sum(averages) / classes, hits, misses, shared, owners


def average_of(curve, points):
    if points:
        return (
            sum(
                max((p for p, r in curve if r >= point * (1 / (points - 1))), default=0.0)
                for point in range(points)
            )
            / points
        )
    total, (best, last) = 0.0, curve[-1]
    for precision, recall in curve[-2::-1]:
        best = max(best, precision)
        total += (last - recall) * best
        last = recall
    return total + last * best


@pytest.mark.parametrize("points", [0, 11, 101])
@pytest.mark.parametrize("least", [0.5, 0.75])
@pytest.mark.parametrize("seed", range(4))
def test_random_detections_match_darknet(seed, least, points):
    examples = random_examples(seed, ties=False)
    rules = Rules("darknet", match_iou=least, threshold=0.4, points=points)
    report = score(examples, named(5), rules)
    averages, mean, hits, misses, shared, objects = map_of(
        examples, 5, least=least, threshold=0.4, points=points
    )
    assert [each.average_precision for each in report.classes] == pytest.approx(averages, abs=1e-12)
    assert report.summary[f"mAP@{least:.2f}"] == pytest.approx(mean, abs=1e-12)
    assert [each.counts.true_positives for each in report.classes] == hits
    assert [each.counts.false_positives for each in report.classes] == misses
    assert report.counts.objects == objects
    assert report.counts.average_iou == pytest.approx(shared / (sum(hits) + sum(misses)), abs=1e-6)


def one_picture(boxes, scores):
    there = Objects.of([[0, 0, 10, 10], [50, 50, 10, 10]], [0, 0])
    return [Example(1, (100, 100), there, Detections.of(boxes, scores, [0] * len(scores)))]


def test_area_begins_at_a_recall_of_zero():
    """Test what earlier versions of darknet left out: the step of the best detection of all."""
    both = one_picture([[0, 0, 10, 10], [50, 50, 10, 10]], [0.9, 0.8])
    assert score(both, ["thing"], Rules("darknet")).summary == {"mAP@0.50": 1}
    assert score(both, ["thing"], Rules("darknet", points=11)).summary == {"mAP@0.50": 1}


def test_a_class_without_objects_counts_as_zero_in_the_mean():
    both = one_picture([[0, 0, 10, 10], [50, 50, 10, 10]], [0.9, 0.8])
    report = score(both, ["thing", "never"], Rules("darknet", points=101))
    assert [each.average_precision for each in report.classes] == [1, 0]
    assert report.summary == {"mAP@0.50": 0.5}


def test_counts_match_the_first_detection_even_below_the_threshold():
    doubled = one_picture([[0, 1, 10, 10], [0, 0, 10, 10]], [0.1, 0.9])
    counts = score(doubled, ["thing"], Rules("darknet")).counts
    assert (counts.true_positives, counts.false_positives) == (0, 1)


def test_no_detections_is_not_an_error():
    report = score(one_picture([], []), ["thing"], Rules("darknet"))
    assert report.summary == {"mAP@0.50": 0}
    assert report.counts.false_negatives == 2


def best_first(rows, size=(100, 100)):
    """Return candidate rows as a detector without NMS does: an entry for each box and class."""
    boxes = boxes_of(rows)
    best = np.argsort(-boxes.scores, kind="stable")
    return Result(size, boxes.xywh[best], boxes.scores[best], boxes.class_ids[best])


def test_the_last_class_decides_which_detection_of_an_object_is_first():
    rows = np.zeros((2, 7), np.float32)
    rows[:, :4] = [[0.3, 0.5, 0.4, 0.4], [0.5, 0.5, 0.4, 0.4]]
    rows[:, 5:] = [[0.9, 0], [0.2, 0.5]]  # the other box is better in the last class
    found = darknet.suppressed(best_first(rows), Suppression(), 2)
    assert found.scores.tolist() == pytest.approx([0.2, 0.5, 0.9])
    there = Objects.of([[20, 30, 40, 40]], [0])
    report = score([Example(1, (100, 100), there, found)], ["a", "b"], Rules("darknet"))
    assert (report.counts.true_positives, report.counts.false_positives) == (0, 2)
    assert report.summary == {"mAP@0.50": 0.5}  # the curve takes the best score first


@pytest.mark.parametrize("kind", ["default", "greedynms", "diounms"])
@pytest.mark.parametrize("seed", range(3))
def test_darknet_order_is_that_of_its_rows(seed, kind):
    random = np.random.default_rng(seed)
    rows = random.random((60, 9), np.float32)
    rows[:, 5:] *= random.random((60, 4)) < 0.4
    expected = boxes_of(suppress_rows(rows, Suppression(kind=kind)))
    assert 0 < len(expected) < np.count_nonzero(rows[:, 5:])
    found = darknet.suppressed(best_first(rows), Suppression(kind=kind), 4)
    np.testing.assert_array_equal(found.class_ids, expected.class_ids)
    np.testing.assert_array_equal(found.scores, expected.scores)
    centre = found.boxes[:, :2] + found.boxes[:, 2:] / 2
    np.testing.assert_allclose(centre / 100, expected.xywh[:, :2], atol=1e-6)


def test_nothing_found_has_no_order():
    assert len(darknet.suppressed(best_first(np.zeros((0, 9), np.float32)), Suppression(), 4)) == 0
