"""The pairs of assign() are the best ones."""

from itertools import permutations

import numpy as np
import pytest

from engine.track.assignment import assign
from tests import needs


def gain(costs, limit, rows, columns):
    return sum(limit - costs[row, column] for row, column in zip(rows, columns, strict=True))


def best_gain(costs, limit):
    """Try every way to pair the shorter side with the longer one."""
    table = np.maximum(limit - np.nan_to_num(costs, nan=np.inf), 0)
    table = table if len(table) <= len(table.T) else table.T
    rows = np.arange(len(table))
    return max(
        table[rows, list(order)].sum() for order in permutations(range(len(table.T)), len(rows))
    )


def tables(random):
    """Yield costs without structure, with ties, and with few pairs that are allowed."""
    shape = random.integers(1, 6, 2)
    yield random.random(shape), 0.7
    yield random.integers(0, 4, shape).astype(float), 3.0
    yield np.where(random.random(shape) < 0.4, random.random(shape), np.nan), 1.0


def test_no_way_to_pair_is_better():
    random = np.random.default_rng(0)
    for costs, limit in (each for _ in range(60) for each in tables(random)):
        rows, columns = assign(costs, limit)
        assert len(set(rows)) == len(rows) == len(set(columns)) == len(columns)
        assert (costs[rows, columns] < limit).all()
        found = gain(costs, limit, rows, columns)
        assert found == pytest.approx(best_gain(costs, limit), abs=1e-12)


@pytest.mark.slow  # SciPy takes two seconds to import
@pytest.mark.parametrize("kind", ["dense", "ties", "crossing", "worst"])
def test_large_tables_agree_with_scipy(kind):
    optimize = needs.package("scipy.optimize")
    random = np.random.default_rng(1)
    near = np.eye(100)[random.permutation(100)]
    costs = {
        "dense": random.random((100, 100)),
        "ties": random.integers(0, 5, (100, 90)).astype(float),
        "crossing": 1 - 0.8 * near + 0.3 * random.random((100, 100)),
        "worst": np.multiply.outer(np.arange(40.0), np.arange(40.0)),
    }[kind]
    limit = 1e4
    found = gain(costs, limit, *assign(costs, limit))
    assert found == pytest.approx(gain(costs, limit, *optimize.linear_sum_assignment(costs)))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 2)])
def test_without_allowed_pairs_there_are_none(shape):
    assert [len(each) for each in assign(np.full(shape, 2.0), 1.0)] == [0, 0]
