from collections import Counter
from pathlib import Path

import pytest

from engine.darknet import cfg, graph, lower, weights
from engine.passes import PASSES, optimise
from tests.passes.check import check_plan

FOLDER = Path(__file__).parents[2] / "cfg"

# the ops that remain: one for each convolution, and those that cannot be fused
EXPECTED = {
    "yolov3-tiny.cfg": {"Conv2d": 13, "MaxPool": 2},
    "yolov4-tiny.cfg": {"Conv2d": 21, "MaxPool": 4},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_only_arithmetic_remains(name):
    network = graph.build(cfg.read(FOLDER / name))
    plan = optimise(lower.lower(network, weights.initial(network)), PASSES)
    check_plan(plan)
    assert Counter(type(op).__name__ for op in plan.ops) == EXPECTED[name]
