"""Short runs of tools/soak_cpu.py, and checks that it detects faults."""

from itertools import count

import numpy as np
import pytest

import engine
from tests.small_models import SMALLEST, write_model
from tools import soak_base, soak_cpu

TIGHT = SMALLEST.format(stride=4)


@pytest.fixture
def wear(tmp_path, monkeypatch):
    monkeypatch.setattr(soak_base, "WARM_UP", 300)
    model = write_model(tmp_path, TIGHT, ["thing"])

    class Small(soak_cpu.SoakCpu):
        def load_small(self, **options):
            return engine.load(
                model.cfg, model.weights, device="cpu", threads=2, threshold=0.0, **options
            )

    return Small(tmp_path)


def row(wear, what):
    (found,) = (each for each in wear.rows if each.what == what)
    return found


@pytest.mark.slow
def test_each_of_many_threads_gets_its_own_answers(wear, monkeypatch):
    monkeypatch.setattr(soak_base, "CALLS", 25)
    wear.threads()
    assert row(wear, "answers").value == 32 * 25
    assert all(each.is_good for each in wear.rows)


def test_swapped_answers_are_noticed(wear, monkeypatch):
    monkeypatch.setattr(soak_base, "CALLS", 3)
    answers = count()
    monkeypatch.setattr(soak_base, "are_same", lambda found, expected: next(answers) != 50)
    wear.threads()
    assert row(wear, "wrong answers").value == 1
    assert not row(wear, "wrong answers").is_good


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "number", "unit", "most"),
    [("images", 700, "picture", 600), ("loads", 70, "load", 6e3)],
)
def test_memory_stays_flat(wear, monkeypatch, part, number, unit, most):
    """Allow the noise of malloc in a short run; memory that is allocated once is not a leak."""
    monkeypatch.setattr(soak_base, {"images": "PICTURES", "loads": "LOADS"}[part], number)
    slopes = []
    while not slopes or (slopes[-1] >= most and len(slopes) < 2):
        wear.rows.clear()
        getattr(wear, part)()
        slopes.append(row(wear, "host memory, slope").value)
    assert slopes[-1] < most, slopes
    assert row(wear, part.replace("images", "pictures")).value == number


@pytest.mark.parametrize(("bytes_kept", "is_good"), [(0, True), (8, True), (10, False)])
def test_leak_of_ten_bytes_per_picture_is_noticed(wear, bytes_kept, is_good):
    noise = np.random.default_rng(0).integers(-50, 50, 50)
    readings = [
        (200 * place, {"host": 10**8 + 200 * place * bytes_kept + int(noise[place])})
        for place in range(50)
    ]
    wear.add_slopes("images", readings, "picture")
    assert row(wear, "host memory, growth per hour").is_good == is_good


def test_the_bundled_network_runs_in_the_precision_that_is_asked_for(tmp_path):
    with soak_cpu.SoakCpu(tmp_path, precision="int8").load_small() as detector:
        assert detector._program.plan.scales
