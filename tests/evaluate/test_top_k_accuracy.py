"""Classes from paths, and top-1 and top-k accuracy."""

import numpy as np
import pytest

from engine.evaluate.top_k_accuracy import TopKAccuracy, class_in, is_ambiguous

LABELS = ["n01", "n02", "", "cat"]


@pytest.mark.parametrize(
    ("path", "right", "ambiguous"),
    [
        ("val/x_n02.jpg", 1, False),
        ("n02/n01.jpg", 0, True),  # the first in the list, not in the path
        ("catalogue/dog.jpg", 3, False),
        ("dog.jpg", None, False),
    ],
)
def test_first_label_contained_in_the_path_is_the_class(path, right, ambiguous):
    assert class_in(path, LABELS) == right
    assert is_ambiguous(path, LABELS) == ambiguous


def test_top_1_and_top_k_are_counted():
    tally = TopKAccuracy(top=2)
    for right in range(4):
        tally.add(np.array([0.1, 0.4, 0.3, 0.2], np.float32), right)
    assert tally.to_dict() == {"pictures": 4, "top1": 0.25, "top2": 0.5}


def test_no_counts_is_not_an_error():
    assert TopKAccuracy().to_dict() == {"pictures": 0, "top1": 0, "top5": 0}
