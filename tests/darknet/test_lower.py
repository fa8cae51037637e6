from __future__ import annotations

import numpy as np

from engine.darknet.cfg import parse
from engine.darknet.graph import build
from engine.darknet.lower import lower
from engine.darknet.weights import initial
from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, plan_of, random_weights

CONV = "[convolutional]\nfilters=2\nactivation=leaky\n"


def test_a_plan_has_one_tensor_for_each_section():
    plan = plan_of(CONV + "[dropout]\n[route]\nlayers=0\n[maxpool]\n")
    assert len(plan.layers) == 4
    assert plan.layers[0] == plan.layers[1] == plan.layers[2]


def test_the_output_is_that_of_the_last_layer_that_is_not_cost():
    plan = plan_of(CONV + "[avgpool]\n[softmax]\n[cost]\n")
    assert plan.outputs == (plan.layers[2],)


def test_detection_layers_are_outputs():
    yolo = "[yolo]\nclasses=1\nnum=1\nanchors=8,8\nmask=0\n"
    head = "[convolutional]\nfilters=6\nactivation=linear\n"
    plan = plan_of(head + yolo + "[route]\nlayers=0\n" + head + yolo + "[route]\nlayers=0\n")
    assert set(plan.outputs) == {plan.layers[1], plan.layers[4], plan.layers[5]}
    assert len(plan.heads) == 2


def test_constants_are_named_after_their_layer():
    graph = graph_of(CONV + CONV)
    arrays = random_weights(graph)
    plan = lower(graph, arrays)
    np.testing.assert_array_equal(plan.constants["1.convolutional.weight"], arrays[1]["weight"])
    assert sorted(plan.constants) == [
        f"{index}.convolutional.{name}" for index in (0, 1) for name in ("bias", "weight")
    ]


def test_time_steps_reach_the_plan():
    graph = build(parse("[net]\ninputs=3\n[connected]\n"), time_steps=5)
    plan = lower(graph, initial(graph))
    assert (plan.steps, plan.source.steps) == (5, 5)


def test_binary_network_folds_all_its_convolutions():
    norm = CONV + "batch_normalize=1\n"
    arrays = random_weights(graph_of(norm + norm))
    for signs in (False, True):
        plan = lower(graph_of(norm + norm + f"xnor={int(signs)}\n"), arrays)
        normalised = [op for op in plan.ops if isinstance(op, ops.Normalise)]
        assert len(normalised) == (0 if signs else 2)


def test_signs_are_taken_of_folded_weights():
    graph = graph_of(CONV + "batch_normalize=1\nxnor=1\n", Shape(2, 1, 1))
    (arrays,) = random_weights(graph)
    arrays["weight"] = np.array([[1, -3], [2, 2]], np.float32).reshape(2, 2, 1, 1)
    arrays["scale"] = np.array([-1, 2], np.float32)
    arrays["variance"] = np.array([4, 1], np.float32)
    plan = lower(graph, (arrays,))
    (conv, _) = plan.ops
    found = plan.constants[conv.weight.name].reshape(2, 2)
    np.testing.assert_allclose(found, [[-1, 1], [4, 4]], rtol=1e-5)
    expected = arrays["bias"] - arrays["mean"] * np.array([-0.5, 2])
    np.testing.assert_allclose(plan.constants[conv.bias.name], expected, rtol=1e-4)
