from dataclasses import replace

import numpy as np
import pytest

from engine.passes.fold_batchnorm import fold_batchnorm
from engine.passes.fuse_activation import fuse_activation
from engine.plan.ops import Conv2d, GridHead, MatMul, Normalise
from engine.plan.shapes import Shape
from tests.passes.check import check_plan
from tests.passes.networks import Network


def kinds(plan):
    return [type(op) for op in plan.ops]


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_normalised_convolution_gets_scaled_filters_and_a_bias(has_bias):
    net = Network()
    naive = net.plan(net.norm(net.conv(net.source, has_bias=has_bias)))
    conv, norm = naive.ops
    plan = fold_batchnorm(naive)
    check_plan(plan)
    (folded,) = plan.ops

    old = {name: values.astype(np.float64) for name, values in naive.constants.items()}
    factor = old[norm.scale.name] / np.sqrt(old[norm.variance.name] + 1e-5)
    weight = old[conv.weight.name] * factor[:, None, None, None]
    before = old[conv.bias.name] if has_bias else 0
    bias = (before - old[norm.mean.name]) * factor + old[norm.bias.name]
    np.testing.assert_array_equal(plan.constants[folded.weight.name], weight.astype(np.float32))
    np.testing.assert_array_equal(plan.constants[folded.bias.name], bias.astype(np.float32))
    assert folded == replace(conv, out=norm.out, weight=folded.weight, bias=folded.bias)


def test_a_dense_layer_folds_too():
    net = Network()
    plan = fold_batchnorm(net.plan(net.norm(net.dense(net.source, 5))))
    check_plan(plan)
    assert kinds(plan) == [MatMul]


def test_layers_that_share_all_constants_share_the_folded_ones():
    net = Network()
    weight = net.array(4, 4, 3, 3)
    norms = net.norm_constants(4)
    first = net.norm(net.conv(net.source, weight=weight), norms)
    plan = fold_batchnorm(net.plan(net.norm(net.conv(first, weight=weight), norms)))
    check_plan(plan)
    one, two = plan.ops
    assert (one.weight, one.bias) == (two.weight, two.bias)
    assert len(plan.constants) == 2


def test_shared_filters_under_two_normalisations_become_two_arrays():
    net = Network()
    weight = net.array(4, 4, 3, 3)
    first = net.norm(net.conv(net.source, weight=weight))
    plan = fold_batchnorm(net.plan(net.norm(net.conv(first, weight=weight))))
    check_plan(plan)
    one, two = plan.ops
    assert one.weight != two.weight
    assert len(plan.constants) == 4


def test_shared_filters_stay_as_they_are_for_a_layer_without_normalisation():
    net = Network()
    weight = net.array(4, 4, 3, 3)
    first = net.norm(net.conv(net.source, weight=weight))
    naive = net.plan(net.conv(first, weight=weight))
    plan = fold_batchnorm(naive)
    check_plan(plan)
    np.testing.assert_array_equal(plan.constants[weight.name], naive.constants[weight.name])
    assert plan.ops[1].weight == weight


def test_a_variance_of_zero_folds():
    net = Network()
    plan = net.plan(net.norm(net.conv(net.source)))
    variance = plan.ops[1].variance.name
    plan.constants[variance][:] = 0
    assert all(np.isfinite(values).all() for values in fold_batchnorm(plan).constants.values())


def test_nan_and_infinity_fold_without_a_warning():
    net = Network()
    plan = net.plan(net.norm(net.conv(net.source)))
    plan.constants[plan.ops[1].variance.name][:] = [-1, np.nan, np.inf, 1e-30]
    plan.constants[plan.ops[1].scale.name][:] = 3e38
    assert kinds(fold_batchnorm(plan)) == [Conv2d]


def second_reader(net):
    middle = net.conv(net.source)
    return net.plan(net.norm(middle), net.activate(middle))


def kept_middle(net):
    middle = net.conv(net.source)
    return net.plan(middle, net.norm(middle))


def middle_a_head_reads(net):
    middle = net.conv(net.source)
    net.builder.head(GridHead(middle, 1, 1, 1))
    return net.plan(net.norm(middle))


def activation_between(net):
    return net.plan(net.norm(net.activate(net.conv(net.source))))


def no_product_before(net):
    return net.plan(net.norm(net.source))


def nonlinear_convolution(net):
    return fuse_activation(net.plan(net.norm(net.activate(net.conv(net.source)))))


def dense_layer_given_rows(net):
    dense = net.dense(net.source, 8)
    out = net.new(Shape(2, 2, 2), dense)
    plan = net.plan(net.norm(out))
    return replace(plan, ops=(replace(plan.ops[0], out=out), plan.ops[1]))


@pytest.mark.parametrize(
    "build",
    [
        second_reader,
        kept_middle,
        middle_a_head_reads,
        activation_between,
        no_product_before,
        nonlinear_convolution,
        dense_layer_given_rows,
    ],
    ids=lambda build: build.__name__,
)
def test_the_plan_is_unchanged(build):
    plan = build(Network())
    assert fold_batchnorm(plan).ops == plan.ops
    assert Normalise in kinds(plan)
