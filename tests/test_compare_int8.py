"""tools/compare_int8.py tells arithmetic that differs from inputs that differ."""

from contextlib import closing

import numpy as np
import pytest

from engine.backends import open_device
from engine.calibrate.collect import ranges_of_noise
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import FUSING, optimise
from engine.passes.quantise import quantise
from tests.backends.cuda.cards import open_card
from tools import compare_int8

NET = """
[net]
width=32
height=24
channels=3

[convolutional]
filters=16
size=3
pad=1
activation=leaky

[convolutional]
filters=32
size=3
pad=1
activation=leaky

[maxpool]
size=2
stride=2

[convolutional]
filters=32
size=1
activation=leaky

[route]
layers=-1,-2

[convolutional]
filters=16
size=3
pad=1
activation=leaky

[convolutional]
filters=8
size=1
activation=linear
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = tmp_path_factory.mktemp("int8") / "net.cfg"
    path.write_text(NET)
    network = graph.build(cfg.read(path))
    written = lower(network, random_weights.arrays(network))
    return quantise(optimise(written, FUSING), ranges_of_noise(written))


@pytest.fixture
def cpu():
    with closing(open_device("cpu:1")) as device:
        yield device


IMAGES = np.random.default_rng(1).random((2, 3, 24, 32), np.float32)


def compare(plan, cpu, other):
    return list(compare_int8.compare("net", plan, cpu, other, IMAGES))


def test_a_device_agrees_with_itself(plan, cpu):
    rows = compare(plan, cpu, cpu)
    assert all(row.in_network == row.largest == 0 for row in rows)
    assert [row.alone for row in rows] == [None, 0, 0, 0]


@pytest.mark.cuda
def test_a_card_has_the_integers_of_the_cpu(plan, cpu):
    with open_card("cuda") as card:
        rows = compare(plan, cpu, card)
    assert [row.alone for row in rows if row.alone] == []
    assert any(row.alone == 0 for row in rows)
    assert max(row.largest for row in rows) <= 2


def test_one_wrong_integer_of_one_op_is_found_there(plan, cpu, monkeypatch):
    """The op that is wrong is blamed, and no op that reads its result."""
    right = compare_int8.integers
    written = [op.out for op in plan.ops if op.out in plan.scales]

    def wrong(shown, device, images):
        found = right(shown, device, images)
        if device is not cpu:
            found[written[1]][0, 0, 0, 0] ^= 1
        return found

    monkeypatch.setattr(compare_int8, "integers", wrong)
    with closing(open_device("cpu:1")) as other:
        rows = compare(plan, cpu, other)
    assert rows[1].alone == rows[1].in_network == 1
    assert sum(row.in_network for row in rows) == 1
