from itertools import combinations

import numpy as np
import pytest

from engine.passes.packing import Lifetime, by_size, by_time


def random_lives(seed, count):
    random = np.random.default_rng(seed)
    for _ in range(count):
        first, last = sorted(random.integers(0, 60, 2).tolist())
        yield Lifetime(16 * int(random.integers(1, 40)), first, last)


def tops(lives, offsets):
    return [offset + life.size for offset, life in zip(offsets, lives, strict=True)]


def most_alive_at_once(lives):
    return max(sum(each.size for each in lives if each.first <= t <= each.last) for t in range(61))


@pytest.mark.parametrize(("pack", "waste"), [(by_size, 1.15), (by_time, 1.45)])
@pytest.mark.parametrize("seed", range(10))
def test_blocks_in_use_at_once_do_not_overlap(pack, waste, seed):
    lives = list(random_lives(seed, 50))
    offsets = pack(lives)
    top = tops(lives, offsets)
    for one, two in combinations(range(len(lives)), 2):
        if lives[one].first <= lives[two].last and lives[two].first <= lives[one].last:
            assert top[one] <= offsets[two] or top[two] <= offsets[one]
    assert min(offsets) == 0
    assert max(top) <= waste * most_alive_at_once(lives)


@pytest.mark.parametrize("pack", [by_size, by_time])
@pytest.mark.parametrize(
    ("lives", "size"),
    [
        ([Lifetime(16, 0, 1), Lifetime(16, 1, 2)], 32),  # both are in use while op 1 runs
        ([Lifetime(16, 0, 1), Lifetime(16, 2, 3)], 16),
        ([Lifetime(32, 0, 1), Lifetime(16, 2, 5), Lifetime(16, 3, 4)], 32),  # a gap is split
        ([Lifetime(16, 0, 1), Lifetime(16, 0, 1), Lifetime(32, 2, 3)], 32),  # gaps are joined
        ([Lifetime(16, 0, 9), Lifetime(16, 0, 1), Lifetime(48, 2, 3)], 64),  # the last gap grows
        ([Lifetime(16, 0, 0)], 16),
    ],
)
def test_small_cases_are_packed_without_waste(pack, lives, size):
    assert max(tops(lives, pack(lives))) == size
