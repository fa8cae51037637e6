from __future__ import annotations

import numpy as np
import pytest

from engine.errors import ConfigError
from engine.plan.shapes import Shape
from tests.darknet.layers.recurrent_runs import (
    Network,
    assert_close,
    assert_steps_are_runs,
    leaky,
    logistic,
)
from tests.darknet.small_networks import graph_of, refusal

SOURCE = Shape(2, 3, 1)
RNN = "[rnn]\nhidden=5\noutput=4\nactivation=leaky\n"


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        ("", leaky),
        ("logistic=1\n", logistic),
        ("logistic=2\n", lambda x: 2 * logistic(x) - 1),  # darknet's loggy
        ("shortcut=1\n", leaky),
        ("batch_normalize=1\n", leaky),
    ],
)
def test_outputs_agree_with_the_definition(option, kept):
    network = Network(RNN + option, SOURCE, sequences=2)
    inputs = network.inputs(3)
    state = np.zeros((2, 5))
    expected = []
    for rows in inputs:
        before = state
        state = leaky(network.dense("input_", rows)) + kept(network.dense("self_", before))
        if "shortcut" in option:
            state = state + before
        expected.append(leaky(network.dense("output_", state)))
    assert_close(network.outputs(inputs), np.stack(expected))


@pytest.mark.parametrize("option", ["", "shortcut=1\n", "batch_normalize=1\n"])
def test_time_steps_equal_separate_runs(option):
    assert_steps_are_runs(RNN + option, SOURCE)


def test_arrays_are_in_file_order():
    (node,) = graph_of(RNN + "batch_normalize=1\n", SOURCE).nodes
    statistics = ("scale", "mean", "variance")
    assert [each.name for each in node.parameters] == [
        f"{part}_{name}"
        for part in ("input", "self", "output")
        for name in ("bias", "weight", *statistics)
    ]
    weights = [each.shape for each in node.parameters if each.name.endswith("weight")]
    assert weights == [(5, 6), (5, 5), (4, 5)]
    assert node.operations == 2 * (30 + 25 + 20)


def test_its_output_is_a_row_of_values():
    assert graph_of(RNN, SOURCE).nodes[0].shape == Shape(4)


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("output=0", "output: expected at least 1"),
        ("hidden=-1", "hidden: expected at least 1"),
        ("logistic=3", "logistic: expected at most 2"),
        ("activation=tan", "unknown 'tan'"),
    ],
)
def test_invalid_options_are_refused(option, problem):
    assert problem in refusal(f"[rnn]\n{option}\n", SOURCE)


@pytest.mark.parametrize("section", ["rnn", "gru", "lstm", "crnn", "conv_lstm", "history"])
def test_too_many_time_steps_are_refused_at_once(section):
    with pytest.raises(ConfigError, match="at most 4096 time steps, got 1000000"):
        graph_of(f"[{section}]\npad=1\n", SOURCE, time_steps=10**6)
