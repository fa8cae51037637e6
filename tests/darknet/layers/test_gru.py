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
from tests.darknet.small_networks import graph_of, refusal

SOURCE = Shape(6)
GRU = "[gru]\noutput=4\n"


@pytest.mark.parametrize("option", ["", "tanh=1\n", "batch_normalize=1\n"])
def test_outputs_agree_with_the_definition(option):
    network = Network(GRU + option, SOURCE, sequences=2)
    squash = np.tanh if "tanh" in option else logistic
    inputs = network.inputs(3)
    state = np.zeros((2, 4))
    expected = []
    for rows in inputs:
        update, reset = (
            logistic(network.dense(f"input_{gate}_", rows) + network.dense(f"state_{gate}_", state))
            for gate in "zr"
        )
        remembered = network.dense("state_h_", reset * state)
        candidate = squash(network.dense("input_h_", rows) + remembered)
        state = update * state + (1 - update) * candidate
        expected.append(state)
    assert_close(network.outputs(inputs), np.stack(expected))


def test_time_steps_equal_separate_runs():
    assert_steps_are_runs(GRU, SOURCE)


def test_arrays_are_in_file_order():
    (node,) = graph_of(GRU, SOURCE).nodes
    assert [(each.name, each.shape) for each in node.parameters] == [
        pair
        for source, inputs in (("input", 6), ("state", 4))
        for gate in "zrh"
        for pair in (
            (f"{source}_{gate}_bias", (4,)),
            (f"{source}_{gate}_weight", (4, inputs)),
        )
    ]
    assert node.operations == 2 * 3 * (24 + 16)


def test_convolution_after_it_is_refused():
    assert "expected a feature map" in refusal(GRU + "[convolutional]\n", SOURCE)
