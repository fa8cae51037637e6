from __future__ import annotations

import numpy as np
import pytest

from engine.plan.shapes import Shape
from tests.darknet.layers.recurrent_runs import Network, assert_close, assert_steps_are_runs, leaky
from tests.darknet.small_networks import graph_of, refusal

SOURCE = Shape(4, 5, 3)
CRNN = "[crnn]\npad=1\nhidden=6\noutput=2\nactivation=leaky\n"


@pytest.mark.parametrize("option", ["", "groups=2\n", "shortcut=1\n", "batch_normalize=1\n"])
def test_outputs_agree_with_the_definition(option):
    network = Network(CRNN + option, SOURCE, sequences=2)
    groups = 2 if "groups" in option else 1
    inputs = network.inputs(3)
    state = np.zeros((2, 6, 5, 3))
    expected = []
    for rows in inputs:
        before = state
        state = leaky(network.convolve("input_", rows, groups))
        state = state + leaky(network.convolve("self_", before, groups))
        if "shortcut" in option:
            state = state + before
        expected.append(leaky(network.convolve("output_", state, groups)))
    assert_close(network.outputs(inputs), np.stack(expected))


def test_time_steps_equal_separate_runs():
    assert_steps_are_runs(CRNN, SOURCE)


def test_arrays_are_in_file_order():
    (node,) = graph_of(CRNN + "groups=2\n", SOURCE).nodes
    assert [(each.name, each.shape) for each in node.parameters] == [
        ("input_bias", (6,)),
        ("input_weight", (6, 2, 3, 3)),
        ("self_bias", (6,)),
        ("self_weight", (6, 3, 3, 3)),
        ("output_bias", (2,)),
        ("output_weight", (2, 3, 3, 3)),
    ]
    assert node.shape == Shape(2, 5, 3)
    assert node.operations == 2 * 15 * 9 * (6 * 2 + 6 * 3 + 2 * 3)


@pytest.mark.parametrize("section", ["crnn", "conv_lstm"])
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("pad=0", "size: expected an odd size with pad=1 and stride=1"),
        ("pad=1\nsize=2", "size: expected an odd size"),
        ("pad=1\nstride=2", "keep the map at 3 x 5, got 2 x 3"),
        ("pad=1\ngroups=3\noutput=3\nhidden=3", "groups: expected a divisor of 4 channels"),
        ("pad=1\ngroups=0", "groups: expected at least 1"),
        ("pad=1\nxnor=1", "xnor: is not supported"),
    ],
)
def test_map_must_keep_its_size(section, options, problem):
    assert problem in refusal(f"[{section}]\n{options}\n", SOURCE)


@pytest.mark.parametrize("section", ["crnn", "conv_lstm"])
def test_dilation_keeps_the_extents_too(section):
    assert graph_of(f"[{section}]\npad=1\ndilation=2\n", SOURCE).nodes[0].shape == Shape(1, 5, 3)
