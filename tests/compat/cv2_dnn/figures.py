"""What OpenCV 4.14 gave, as record.py wrote it, and how near the engine must come."""

import json
from pathlib import Path

FIGURES = json.loads(Path(__file__).with_name("figures.json").read_text())

MIN_IOU = 0.99
MAX_SCORE_ERROR = 0.02


def assert_same_boxes(found, expected):
    """Check classes in order, scores and boxes.

    A box may also differ by one pixel: a program that rounds to whole pixels turns the smallest
    difference into one.
    """
    assert [row[0] for row in found] == [row[0] for row in expected]
    for (_, score, box), (_, wanted_score, wanted_box) in zip(found, expected, strict=True):
        assert abs(score - wanted_score) <= MAX_SCORE_ERROR
        nearest = max(abs(a - b) for a, b in zip(box, wanted_box, strict=True))
        assert iou(box, wanted_box) >= MIN_IOU or nearest <= 1


def iou(a, b):
    sides = [max(0, min(a[i] + a[i + 2], b[i] + b[i + 2]) - max(a[i], b[i])) for i in (0, 1)]
    both = sides[0] * sides[1]
    return both / max(a[2] * a[3] + b[2] * b[3] - both, 1e-9)
