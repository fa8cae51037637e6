"""k-means over the sizes of boxes."""

import numpy as np
import pytest

from engine.darknet import anchor_clusters
from engine.darknet.anchor_clusters import find_anchors
from engine.errors import InputError


def test_groups_of_sizes_are_found_and_sorted_by_area():
    random = np.random.default_rng(1)
    centres = np.array([[300, 200], [10, 20], [60, 30]])
    sides = np.concatenate([centre * random.uniform(0.95, 1.05, (50, 2)) for centre in centres])
    found = find_anchors(sides, 3)
    np.testing.assert_allclose(found.anchors, [[10, 20], [60, 30], [300, 200]], rtol=0.02)
    assert found.average_iou > 0.93


def test_the_average_iou_reaches_that_of_darknet():
    """Darknet's method from random starts finds no better anchors than the best of several."""
    sides = np.random.default_rng(5).gamma(1.5, 60, (300, 2))
    found = find_anchors(sides, 5)
    np.testing.assert_array_equal(found.anchors, find_anchors(sides, 5).anchors)
    random = np.random.default_rng(9)
    singles = [_by_hand(sides, random.permutation(sides)[:5]) for _ in range(5)]
    assert found.average_iou > np.mean(singles)
    assert found.average_iou > max(singles) - 0.005


def _by_hand(sides, centres):
    assigned = None
    while True:
        common = np.minimum(sides[:, None], centres).prod(2)
        iou = common / (sides.prod(1)[:, None] + centres.prod(1) - common)
        nearest = iou.argmax(1)
        if assigned is not None and (nearest == assigned).all():
            return iou.max(1).mean()
        assigned = nearest
        centres = np.array([sides[assigned == k].mean(0) for k in range(len(centres))])


def test_many_boxes_start_from_a_sample(monkeypatch):
    sides = np.random.default_rng(5).gamma(1.5, 60, (1000, 2))
    of_all = find_anchors(sides, 3)
    monkeypatch.setattr(anchor_clusters, "_SAMPLE", 100)
    assert find_anchors(sides, 3).average_iou == pytest.approx(of_all.average_iou, abs=0.01)


@pytest.mark.parametrize("count", [0, 5])
def test_there_are_at_most_as_many_anchors_as_boxes(count):
    with pytest.raises(InputError, match=f"expected 1 to 4, the number of boxes, got {count}"):
        find_anchors(np.ones((4, 2)), count)
