"""Candidate rows in darknet's order."""

import numpy as np

from engine.vision.boxes import Suppression
from engine.vision.rows import boxes_of, split_by_objectness, suppress_rows

LEFT, RIGHT = [0.2, 0.5, 0.2, 0.2], [0.8, 0.5, 0.2, 0.2]


def rows(*entries):
    return np.array([[*box, objectness, *scores] for box, objectness, scores in entries], "f4")


def test_rows_are_sorted_class_by_class_and_the_last_class_decides():
    given = rows((LEFT, 0.9, [0.8, 0]), (RIGHT, 0.9, [0.9, 0]), (RIGHT, 0.5, [0, 0.4]))
    found = suppress_rows(given, Suppression(0.45))
    np.testing.assert_array_equal(found[:, 5:], np.float32([[0, 0.4], [0.9, 0], [0.8, 0]]))


def test_a_suppressed_score_becomes_zero_and_keeps_its_place():
    given = rows((LEFT, 0.9, [0.3, 0.7]), (LEFT, 0.9, [0.6, 0.5]))
    found = suppress_rows(given, Suppression(0.45))
    np.testing.assert_array_equal(found[:, 5:], np.float32([[0, 0.7], [0.6, 0]]))
    assert given[1, 6] == np.float32(0.5)  # the argument is not changed


def test_suppression_by_objectness_ignores_the_class():
    given = rows((LEFT, 0.5, [0.5, 0]), (LEFT, 0.9, [0, 0.2]), (RIGHT, 0.4, [0.4, 0]))
    kept, others = split_by_objectness(given, Suppression(0.4))
    np.testing.assert_array_equal(kept[:, 4], np.float32([0.9, 0.4]))
    np.testing.assert_array_equal(others[:, 4], np.float32([0.5]))


def test_boxes_keep_the_order_of_the_rows():
    found = boxes_of(rows((RIGHT, 0.9, [0.2, 0.4]), (LEFT, 0.9, [0.9, 0])), min_score=0.3)
    assert found.class_ids.tolist() == [1, 0]
    np.testing.assert_array_equal(found.scores, np.float32([0.4, 0.9]))


def test_there_may_be_no_rows():
    none = np.zeros((0, 7), np.float32)
    assert len(suppress_rows(none, Suppression())) == 0
    assert len(boxes_of(split_by_objectness(none, Suppression())[0])) == 0
