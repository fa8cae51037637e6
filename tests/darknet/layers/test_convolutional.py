from __future__ import annotations

import numpy as np
import pytest

from engine.darknet.lower import lower
from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, plan_of, shapes_of


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", Shape(1, 13, 19)),
        ("filters=4\nsize=3\npad=1", Shape(4, 13, 19)),
        ("filters=4\nsize=3", Shape(4, 11, 17)),
        ("size=3\npad=1\npadding=5", Shape(1, 13, 19)),  # padding is ignored if pad is set
        ("size=3\npadding=5", Shape(1, 21, 27)),
        ("size=2\npad=1", Shape(1, 14, 20)),  # even kernels enlarge the map
        ("size=3\npad=1\nstride=2", Shape(1, 7, 10)),
        ("size=3\npad=1\nstride_x=2", Shape(1, 13, 10)),
        ("size=3\npad=1\nstride=2\nstride_y=1", Shape(1, 13, 10)),
        ("size=3\npad=1\nstride=2\nstride_x=0", Shape(1, 7, 10)),
        ("size=3\npad=1\ndilation=2", Shape(1, 13, 19)),
        ("size=3\npad=1\nstride=2\nantialiasing=1", Shape(1, 7, 10)),
        ("size=3\npad=1\nstride=2\nantialiasing=2", Shape(1, 6, 9)),
    ],
)
def test_shape(options, expected):
    assert shapes_of(f"[convolutional]\n{options}\n", Shape(3, 13, 19)) == [expected]


def lowered(options):
    plan = plan_of(f"[convolutional]\n{options}\n", Shape(4, 6, 10))
    return plan, plan.ops


def test_without_normalisation_the_bias_belongs_to_the_convolution():
    _, (conv, activate) = lowered("filters=2\nsize=3\npad=1\nactivation=leaky")
    assert isinstance(conv, ops.Conv2d)
    assert conv.bias is not None
    assert (conv.padding, conv.activation) == ((1, 1, 1, 1), "linear")
    assert (activate.src, activate.activation) == (conv.out, "leaky")


@pytest.mark.parametrize("key", ["batch_normalize", "cbn"])
def test_with_normalisation_the_bias_comes_last(key):
    plan, (conv, normalise) = lowered(f"filters=2\n{key}=1\nactivation=linear")
    assert conv.bias is None
    assert isinstance(normalise, ops.Normalise)
    assert normalise.bias.name == "0.convolutional.bias"
    assert plan.layers == (normalise.out,)


def test_the_default_activation_is_logistic():
    assert lowered("")[1][-1].activation == "logistic"


def test_stride_dilation_and_groups_reach_the_op():
    _, (conv, _) = lowered("filters=8\nsize=3\npad=1\nstride_x=2\ndilation=3\ngroups=2")
    assert (conv.stride, conv.dilation, conv.groups) == ((1, 2), (3, 3), 2)
    assert conv.padding == (3, 3, 3, 3)
    assert conv.weight.shape == (8, 2, 3, 3)


def test_dilation_does_not_affect_a_1x1_kernel():
    _, (conv, _) = lowered("size=1\ndilation=4")
    assert conv.dilation == (1, 1)


def test_normalisation_by_channels_is_its_own_op():
    _, (_, across) = lowered("filters=2\nactivation=normalize_channels_softmax_maxval")
    assert isinstance(across, ops.NormaliseChannels)
    assert across.kind == "softmax_max"


@pytest.mark.parametrize("key", ["binary", "xnor"])
def test_binary_weights_are_signs_times_the_mean(key):
    graph = graph_of(f"[convolutional]\nfilters=1\n{key}=1\n", Shape(3, 2, 2))
    weight = np.array([0.5, -1.0, 0.0], np.float32).reshape(1, 3, 1, 1)
    plan = lower(graph, [{"bias": np.zeros(1, np.float32), "weight": weight}])
    assert plan.constants["0.convolutional.weight"].reshape(-1).tolist() == [0.5, -0.5, -0.5]
    assert plan.ops[0].signed == (key == "xnor")


def test_xnor_has_no_groups():
    _, (conv, _) = lowered("filters=8\ngroups=4\nxnor=1")
    assert conv.groups == 1


XNOR = "[convolutional]\nfilters=4\nxnor=1\nbin_output=1\nactivation=leaky\n"


def test_bin_output_drops_the_activation_of_a_signed_layer():
    kinds = [type(op).__name__ for op in plan_of(XNOR + "[maxpool]\nstride=2\n").ops]
    assert kinds == ["Conv2d", "MaxPool"]


@pytest.mark.parametrize(
    "reader",
    [
        "[route]\nlayers=-1,-1\n",
        "[shortcut]\nfrom=-1\n",
        "[convolutional]\nfilters=4\n[sam]\nfrom=0\n",
        "[avgpool]\n[scale_channels]\nfrom=0\n",
    ],
)
def test_bin_output_is_dropped_if_values_are_read(reader):
    assert isinstance(plan_of(XNOR + reader).ops[1], ops.Activate)


def test_darknet_overlooks_further_sources_of_a_shortcut():
    body = XNOR + "[convolutional]\nfilters=4\n" * 2 + "[shortcut]\nfrom={}\n"
    first, later = (plan_of(body.format(each), Shape(4, 3, 3)).ops for each in ("0,1", "1,0"))
    assert isinstance(first[1], ops.Activate)
    assert isinstance(later[1], ops.Conv2d)


def test_shared_layer_uses_the_weights_of_its_source():
    owner = "[convolutional]\nfilters=4\nbatch_normalize=1\n"
    borrower = "[convolutional]\nfilters=4\nshare_index=-1\nactivation=relu\n"
    plan = plan_of(owner + borrower, Shape(4, 3, 3))
    assert [type(op).__name__ for op in plan.ops] == ["Conv2d", "Normalise", "Activate"] * 2
    assert plan.ops[5].activation == "relu"
    for name in ("weight", "mean"):
        np.testing.assert_array_equal(
            plan.constants[f"0.convolutional.{name}"], plan.constants[f"1.convolutional.{name}"]
        )


@pytest.mark.parametrize(
    ("kind", "taps", "padding"),
    [(1, [[1, 2, 1], [2, 4, 2], [1, 2, 1]], 1), (2, [[1, 1], [1, 1]], 0)],
)
def test_antialiasing_blurs_with_the_stride(kind, taps, padding):
    options = f"filters=2\nsize=3\npad=1\nstride=2\nantialiasing={kind}\nactivation=linear"
    plan, (conv, blur) = lowered(options)
    assert (conv.stride, blur.stride) == ((1, 1), (2, 2))
    assert (blur.groups, blur.padding) == (2, (padding,) * 4)
    expected = np.array(taps) / np.sum(taps)
    for channel in plan.constants[blur.weight.name]:
        np.testing.assert_array_equal(channel[0], expected.astype(np.float32))
    assert plan.layers == (blur.out,)


def test_operations_of_groups_and_blur():
    graph = graph_of(
        "[convolutional]\nfilters=8\nsize=3\npad=1\nstride=2\ngroups=2\nantialiasing=1\n",
        Shape(4, 6, 10),
    )
    assert graph.operations == 2 * 8 * 60 * 2 * 9
