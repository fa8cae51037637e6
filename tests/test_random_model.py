"""tools/random_model.py: thresholds for untrained networks."""

import numpy as np
import pytest

from tools.random_model import threshold_for


def rows_of(certain, classes):
    """Return candidates with these objectness values and class scores."""
    rows = np.zeros((len(certain), 5 + len(classes[0])), np.float32)
    rows[:, 4], rows[:, 5:] = certain, classes
    return rows


def test_threshold_leaves_the_requested_number_of_boxes():
    scores = np.random.default_rng(0).random((1000, 3), np.float32)
    rows = rows_of(np.random.default_rng(1).random(1000), scores * 0.9)
    assert (rows[:, 5:] >= threshold_for(rows, 20)).sum() == 20


def test_objectness_above_every_score_limits_the_cells():
    certain = np.linspace(0.4, 0.6, 1000)
    rows = rows_of(certain, np.full((1000, 2), 0.3))
    assert (rows[:, 4] >= threshold_for(rows, 5)).sum() == 50


@pytest.mark.parametrize("found", [2, 500])
def test_full_objectness_leaves_the_choice_to_class_scores(found):
    rows = rows_of(np.ones(100), np.random.default_rng(0).random((100, 1)))
    assert (rows[:, 5:] >= threshold_for(rows, found)).sum() == min(found, 100)
