"""Neighbours finds the same pairs as comparing all boxes."""

import numpy as np
import pytest

from engine.vision import neighbours, nms
from engine.vision.boxes import Suppression
from engine.vision.neighbours import Neighbours

AREA = (900.0, 300.0)


def random_edges(count, sides, seed=0):
    """Return boxes of sides up to `sides`, some of them beyond the area."""
    random = np.random.default_rng(seed)
    low = random.uniform(-50, np.array(AREA), (count, 2))
    return np.hstack([low, low + random.uniform(0, sides, (count, 2))])


def touching_pairs(edges, groups):
    low, high = edges[:, None, :2], edges[:, None, 2:]
    table = ((low < high.swapaxes(0, 1)) & (low.swapaxes(0, 1) < high)).all(axis=2)
    table &= groups[:, None] == groups
    return set(zip(*(each.tolist() for each in np.nonzero(table)), strict=True))


def found_pairs(near, boxes):
    pairs = [
        pair
        for part in near.touching(boxes)
        for pair in zip(*(each.tolist() for each in part), strict=True)
    ]
    assert len(pairs) == len(set(pairs))
    return set(pairs)


@pytest.mark.parametrize("sides", [0, 2, 30, 2000])
@pytest.mark.parametrize("classes", [1, 7])
@pytest.mark.parametrize("at_once", [1 << 18, 50])
def test_pairs_are_those_that_touch(monkeypatch, sides, classes, at_once):
    monkeypatch.setattr(neighbours, "_PAIRS_AT_ONCE", at_once)
    edges = np.concatenate([random_edges(250, sides), random_edges(30, 900, seed=1)])
    edges[-1] = -1e30, -1e30, 1e30, 1e30
    edges[-2] = edges[-2][[2, 3, 0, 1]]  # of a negative size
    edges[-3] = np.nan
    edges[-4] = np.round(edges[-5])
    groups = np.random.default_rng(0).integers(classes, size=len(edges)) * 1000
    near = Neighbours(edges, groups, AREA)
    wanted = touching_pairs(edges, groups)
    assert found_pairs(near, np.arange(len(edges))) == wanted
    some = np.arange(3, 280, 5)
    assert found_pairs(near, some) == {pair for pair in wanted if pair[0] in some}
    assert near.count() >= len(wanted)


def test_of_small_boxes_few_are_compared():
    edges = random_edges(20_000, 4)
    assert Neighbours(edges, np.zeros(20_000, int), AREA).count() < 20_000 * 100


def test_no_boxes_have_no_neighbours():
    near = Neighbours(np.empty((0, 4)), np.empty(0, int), AREA)
    assert near.count() == 0
    assert list(near.touching(np.arange(0))) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["default", "greedynms", "diounms"])
@pytest.mark.parametrize("threshold", [0.0, 0.45])
def test_nms_of_many_boxes_is_that_of_a_table(monkeypatch, kind, threshold):
    random = np.random.default_rng(3)
    xywh = random.uniform(0, 1, (3000, 4)).astype(np.float32)
    xywh[:, 2:] *= 0.05
    xywh[::100, 2:] *= 10
    chosen, groups = Suppression(threshold, kind), np.zeros(3000, int)
    got = nms.survivors_of_groups(xywh, groups, chosen)
    monkeypatch.setattr(nms, "_TABLE_BOXES", 3000)
    np.testing.assert_array_equal(got, nms.survivors_of_groups(xywh, groups, chosen))
    assert 0 < got.sum() < 3000
