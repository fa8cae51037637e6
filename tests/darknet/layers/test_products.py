from __future__ import annotations

import pytest

from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, plan_of, shapes_of


@pytest.mark.parametrize("section", ["connected", "conn"])
def test_connected_reads_all_values(section):
    plan = plan_of(f"[{section}]\noutput=3\nactivation=linear\n")
    (product,) = plan.ops
    assert isinstance(product, ops.MatMul)
    assert product.weight.shape == (3, 480)
    assert product.bias is not None
    assert product.out.shape == Shape(3)


def test_connected_normalises_before_its_bias():
    product, normalise, activate = plan_of("[connected]\noutput=3\nbatch_normalize=1\n").ops
    assert product.bias is None
    assert isinstance(normalise, ops.Normalise)
    assert activate.activation == "logistic"


def test_a_convolution_may_follow_connected():
    assert shapes_of("[connected]\noutput=3\n[convolutional]\n")[1] == Shape(1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("size=3\npad=1", Shape(2, 6, 10)),
        ("size=3\npad=1\nstride=2", Shape(2, 3, 5)),
        ("size=3\npad=0", Shape(2, 4, 8)),
        ("size=5\npad=2", Shape(2, 6, 10)),
    ],
)
def test_local_shape(options, expected):
    graph = graph_of(f"[local]\nfilters=2\n{options}\n")
    (node,) = graph.nodes
    assert node.shape == expected
    bias, weight = node.parameters
    assert bias.shape == (expected.size,)
    assert weight.shape[:2] == (expected.area, 2)
    assert graph.operations == 2 * weight.size


def test_local_lowers_to_its_own_op():
    local, activate = plan_of("[local]\nsize=3\npad=1\nactivation=leaky\n").ops
    assert isinstance(local, ops.LocalConv2d)
    assert (local.size, local.stride, local.padding) == (3, 1, 1)
    assert activate.activation == "leaky"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", Shape(1, 6, 10)),
        ("filters=4\nsize=2\nstride=2", Shape(4, 12, 20)),
        ("filters=4\nsize=3\nstride=2\npad=1", Shape(4, 11, 19)),
        ("filters=4\nsize=4\nstride=2\npadding=1", Shape(4, 12, 20)),
    ],
)
def test_deconvolution_shape(options, expected):
    assert shapes_of(f"[deconvolutional]\n{options}\n") == [expected]


def test_deconvolution_normalises_before_its_bias():
    layers = "[deconv]\nfilters=4\nsize=3\nstride=2\npad=1\nbatch_normalize=1\n"
    deconv, normalise, _ = plan_of(layers).ops
    assert deconv.weight.shape == (8, 4, 3, 3)
    assert (deconv.bias, deconv.stride, deconv.padding) == (None, 2, 1)
    assert isinstance(normalise, ops.Normalise)
    graph = graph_of(layers)
    assert [each.name for each in graph.nodes[0].stored][-1] == "weight"
    assert graph.operations == 2 * 480 * 4 * 9


def test_deconvolution_without_normalisation_has_a_bias():
    deconv, _ = plan_of("[deconvolutional]\nfilters=4\n").ops
    assert deconv.bias.shape == (4,)
