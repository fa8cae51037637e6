from __future__ import annotations

import numpy as np
import pytest

from engine.darknet.lower import lower
from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, plan_of

CONVS = "[convolutional]\nfilters=2\nactivation=linear\n" * 3


def test_the_layer_before_comes_first():
    plan = plan_of(CONVS + "[shortcut]\nfrom=-3,-2\n")
    (add,) = plan.ops[3:]
    assert isinstance(add, ops.Add)
    assert add.sources == (plan.layers[2], plan.layers[0], plan.layers[1])
    assert add.weights is None


@pytest.mark.parametrize("activation", ["leaky", "mish", "swish", "hard_mish"])
def test_activation_is_applied_after_the_sum(activation):
    plan = plan_of(CONVS + f"[shortcut]\nfrom=-2\nactivation={activation}\n")
    assert plan.ops[-1].activation == activation


def test_the_shape_is_that_of_the_layer_before():
    plan = plan_of(CONVS + "[maxpool]\nstride=2\n[shortcut]\nfrom=-2\n")
    assert plan.layers[-1].shape == Shape(2, 3, 5)


def factors(kind, normalization, weight):
    text = f"[shortcut]\nfrom=-2\nweights_type={kind}\nweights_normalization={normalization}\n"
    graph = graph_of(CONVS + text)
    conv = {"bias": np.zeros(2), "weight": np.zeros((2, 8, 1, 1))}
    narrow = {"bias": np.zeros(2), "weight": np.zeros((2, 2, 1, 1))}
    assert graph.nodes[3].parameters[0].shape == np.shape(weight)
    plan = lower(graph, [conv, narrow, narrow, {"weight": np.array(weight, np.float32)}])
    return plan.constants["3.shortcut.weight"]


@pytest.mark.parametrize("normalization", ["relu", "avg_relu"])
@pytest.mark.parametrize("kind", ["per_feature", "per_layer"])
def test_relu_weights_are_normalised_by_their_positive_sum(kind, normalization):
    got = factors(kind, normalization, [[3.0], [-1.0]])
    np.testing.assert_allclose(got, [[3 / 3.0011], [0.001 / 3.0011]], rtol=1e-6)


def test_softmax_weights_are_normalised_per_channel():
    got = factors("per_channel", "softmax", [[0.0, 1.0], [1.0, 1.0]])
    low = np.exp(-1)
    np.testing.assert_allclose(
        got,
        [[low / (1 + low + 1e-4), 1 / 2.0001], [1 / (1 + low + 1e-4), 1 / 2.0001]],
        rtol=1e-6,
    )
