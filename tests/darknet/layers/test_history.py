from __future__ import annotations

import numpy as np

from engine.plan.shapes import Shape
from tests.darknet.layers.recurrent_runs import Network
from tests.darknet.small_networks import graph_of, plan_of, refusal

SOURCE = Shape(2, 3, 4)


def test_newest_map_comes_first_and_history_persists_across_runs():
    network = Network("[history]\nhistory_size=3\n", SOURCE, steps=2, sequences=2)
    inputs = network.inputs(3)
    in_time = inputs.reshape(6, 2, *SOURCE.sides)  # time step, sequence
    before = np.zeros((2, 2, *SOURCE.sides), np.float32)
    timeline = np.concatenate([before, in_time])
    expected = [
        np.concatenate([timeline[now + 2], timeline[now + 1], timeline[now]], axis=1)
        for now in range(6)
    ]
    got = network.outputs(inputs).reshape(6, 2, 6, 3, 4)
    np.testing.assert_array_equal(got, np.stack(expected))


def test_one_time_step_has_no_history():
    network = Network("[history]\n", SOURCE)
    inputs = network.inputs(2)
    outputs = network.outputs(inputs)
    np.testing.assert_array_equal(outputs[:, :, :2], inputs)
    assert outputs.shape[2] == 8
    assert not outputs[:, :, 2:].any()


def test_a_history_of_one_is_the_map_itself():
    assert plan_of("[history]\nhistory_size=1\n", SOURCE).ops == ()


def test_layer_has_no_arrays():
    (node,) = graph_of("[history]\n", SOURCE).nodes
    assert node.parameters == ()
    assert node.operations == 0
    assert node.shape == Shape(8, 3, 4)


def test_an_empty_history_is_refused():
    assert "history_size: expected at least 1" in refusal("[history]\nhistory_size=0\n", SOURCE)
