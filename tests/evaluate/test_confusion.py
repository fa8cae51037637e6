"""Confusion of objects and detections."""

import numpy as np
import pytest

from engine.evaluate.confusion import confusion, most_confused
from engine.evaluate.examples import Detections, Example, Objects
from tests.evaluate.random_examples import random_examples

BOX, ELSEWHERE = [0, 0, 10, 10], [60, 60, 10, 10]


@pytest.mark.parametrize(
    ("boxes", "class_ids", "scores", "expected"),
    [
        ([BOX], [0], [0.9], {(0, 0): 1}),
        ([BOX], [1], [0.9], {(0, 1): 1}),
        ([], [], [], {(0, 2): 1}),
        ([ELSEWHERE], [1], [0.9], {(0, 2): 1, (2, 1): 1}),
        ([BOX], [0], [0.1], {(0, 2): 1}),  # below the threshold
        ([BOX, BOX], [0, 1], [0.8, 0.9], {(0, 1): 1, (2, 0): 1}),  # the best score first
    ],
)
def test_each_object_and_each_detection_is_counted_once(boxes, class_ids, scores, expected):
    example = Example(
        1, (100, 100), Objects.of([BOX], [0]), Detections.of(boxes, scores, class_ids)
    )
    counts = confusion([example], 2, iou_threshold=0.5, threshold=0.25)
    assert {tuple(map(int, at)): int(counts[tuple(at)]) for at in np.argwhere(counts)} == expected


def test_optional_object_is_neither_missed_nor_found():
    there = Objects.of([BOX], [0], optional=[True])
    for found in (Detections.of([], [], []), Detections.of([BOX], [0.9], [0])):
        assert not confusion(
            [Example(1, (9, 9), there, found)], 1, iou_threshold=0.5, threshold=0
        ).any()


def test_rows_sum_to_the_objects_that_have_to_be_found():
    examples = random_examples(2)
    counts = confusion(examples, 4, iou_threshold=0.5, threshold=0.3)
    ids = np.concatenate([each.objects.class_ids[~each.objects.optional] for each in examples])
    assert counts[:4].sum(axis=1).tolist() == np.bincount(ids, minlength=4).tolist()


def test_most_frequent_confusions_come_first():
    counts = np.array([[9, 1, 0], [3, 7, 5], [8, 8, 0]])
    assert most_confused(counts, 5) == [(1, 0, 3), (0, 1, 1)]
    assert most_confused(counts, 1) == [(1, 0, 3)]
