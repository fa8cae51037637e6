from __future__ import annotations

import numpy as np
import pytest

from engine.plan.shapes import Shape
from tests.darknet.layers.recurrent_runs import (
    Network,
    assert_close,
    assert_steps_are_runs,
    logistic,
)
from tests.darknet.small_networks import graph_of

SOURCE = Shape(6)
LSTM = "[lstm]\noutput=4\n"


@pytest.mark.parametrize("option", ["", "batch_normalize=1\n"])
def test_outputs_agree_with_the_definition(option):
    network = Network(LSTM + option, SOURCE, sequences=2)
    inputs = network.inputs(3)
    state = cell = np.zeros((2, 4))
    expected = []
    for rows in inputs:
        forget, take, content, show = (
            network.dense(f"w{gate}_", state) + network.dense(f"u{gate}_", rows) for gate in "figo"
        )
        cell = logistic(forget) * cell + logistic(take) * np.tanh(content)
        state = logistic(show) * np.tanh(cell)
        expected.append(state)
    assert_close(network.outputs(inputs), np.stack(expected))


def test_time_steps_equal_separate_runs():
    assert_steps_are_runs(LSTM, SOURCE)


def test_arrays_are_in_file_order():
    (node,) = graph_of(LSTM, SOURCE).nodes
    assert [(each.name, each.shape) for each in node.parameters] == [
        pair
        for source, inputs in (("w", 4), ("u", 6))
        for gate in "figo"
        for pair in ((f"{source}{gate}_bias", (4,)), (f"{source}{gate}_weight", (4, inputs)))
    ]
