from __future__ import annotations

import numpy as np
import pytest

from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.layers.recurrent_runs import (
    Network,
    assert_close,
    assert_steps_are_runs,
    leaky,
    logistic,
)
from tests.darknet.small_networks import graph_of, plan_of, refusal

SOURCE = Shape(4, 5, 3)
LAYER = "[conv_lstm]\npad=1\noutput=4\n"


@pytest.mark.parametrize(
    "options",
    [
        "",
        "groups=2\n",
        "batch_normalize=1\nactivation=leaky\n",
        "peephole=1\n",
        "state_constrain=1\n",
        "lstm_activation=leaky\n",
        "shortcut=1\n",  # does nothing without a bottleneck
        "bottleneck=1\n",
        "bottleneck=1\nshortcut=1\npeephole=1\nlstm_activation=leaky\n",
    ],
)
def test_outputs_agree_with_the_definition(options):
    network = Network(LAYER + options, SOURCE, sequences=2)
    squash = leaky if "lstm_activation" in options else np.tanh
    inputs = network.inputs(4)

    def convolve(prefix, x):
        out = network.convolve(prefix, x, 2 if "groups" in options else 1)
        return leaky(out) if "\nactivation" in options else out

    state = cell = np.zeros((2, 4, 5, 3))
    expected = []
    largest = 0.0
    for rows in inputs:
        if "bottleneck" in options:
            narrow = squash(convolve("wf_", np.concatenate([state, rows], axis=1)))
            sums = {gate: convolve(f"u{gate}_", narrow) for gate in "figo"}
        else:
            sums = {
                gate: convolve(f"w{gate}_", state) + convolve(f"u{gate}_", rows) for gate in "figo"
            }
        if "peephole" in options:
            sums["f"] = sums["f"] + convolve("vf_", cell)
            sums["i"] = sums["i"] + convolve("vi_", cell)
        cell = logistic(sums["f"]) * cell + logistic(sums["i"]) * squash(sums["g"])
        if "peephole" in options:
            sums["o"] = sums["o"] + convolve("vo_", cell)
        state = logistic(sums["o"]) * squash(cell)
        largest = max(largest, np.abs(cell).max())
        if "state_constrain" in options:
            cell = np.clip(cell, -1, 1)
        output = state.copy()
        if options.startswith("bottleneck") and "shortcut" in options:
            output[:, :2] += narrow[:, :2]
        expected.append(output)
    assert "state_constrain" not in options or largest > 1.1
    assert_close(network.outputs(inputs), np.stack(expected))


@pytest.mark.parametrize("option", ["", "bottleneck=1\nshortcut=1\n"])
def test_time_steps_equal_separate_runs(option):
    assert_steps_are_runs(LAYER + "state_constrain=2\n" + option, SOURCE)


@pytest.mark.parametrize(
    ("option", "prefixes"),
    [
        ("", "wf wi wg wo uf ui ug uo"),
        ("peephole=1", "vf vi vo wf wi wg wo uf ui ug uo"),
        ("bottleneck=1", "wf uf ui ug uo"),
    ],
)
def test_arrays_are_in_file_order(option, prefixes):
    (node,) = graph_of(LAYER + option, SOURCE).nodes
    assert [each.name for each in node.parameters] == [
        f"{prefix}_{name}" for prefix in prefixes.split() for name in ("bias", "weight")
    ]


@pytest.mark.parametrize(
    ("option", "steps", "limits"),
    [
        ("", 1, {32.0}),
        ("", 3, {96.0}),
        ("state_constrain=5", 3, {5.0}),
        ("state_constrain=0", 1, set()),
    ],
)
def test_cell_clipping(option, steps, limits):
    plan = (
        plan_of(LAYER + option, SOURCE)
        if steps == 1
        else Network(LAYER + option, SOURCE, steps=steps).plan
    )
    assert {op.limit for op in plan.ops if isinstance(op, ops.Clip)} == limits


def test_non_finite_state_is_not_kept():
    network = Network(LAYER, SOURCE)
    inputs = network.inputs(2)
    inputs[0, 0, 0, 0, 0] = np.nan
    outputs = network.outputs(inputs)
    assert np.isfinite(outputs).all()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("output=3\nbottleneck=1", "bottleneck: expected as many filters in output as there are"),
        ("output=4\nstate_constrain=-1", "state_constrain: expected at least 0"),
        ("output=4\nlstm_activation=tahn", "Did you mean 'tanh'?"),
    ],
)
def test_invalid_options_are_refused(options, problem):
    assert problem in refusal(f"[conv_lstm]\npad=1\n{options}\n", SOURCE)


def test_half_of_an_odd_bottleneck_is_refused():
    layer = "[conv_lstm]\npad=1\noutput=3\nbottleneck=1\nshortcut=1\n"
    assert "shortcut: expected an even output, got 3" in refusal(layer, Shape(3, 5, 3))
