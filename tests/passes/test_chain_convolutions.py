from dataclasses import replace

import pytest

from engine.passes import PASSES, optimise
from engine.passes.chain_convolutions import chain_convolutions
from engine.plan.ops import Chain
from engine.plan.shapes import Shape
from tests.passes.check import check_plan
from tests.passes.networks import Network
from tests.passes.test_optimise import assert_same_numbers


def fused(net, *outputs):
    names = [name for name in PASSES if name not in ("chain_convolutions", "place_tensors")]
    return optimise(net.plan(*outputs), names)


def bottleneck(net, src, *, expanded=8, filters=4, stride=1):
    wide = net.activate(net.conv(src, expanded, 1))
    deep = net.activate(net.conv(wide, stride=stride, is_depthwise=True))
    return net.conv(deep, filters, 1)


def lengths(plan):
    return [len(op.links) if isinstance(op, Chain) else 1 for op in plan.ops]


def test_tensors_inside_a_bottleneck_disappear():
    net = Network()
    naive = fused(net, net.add(bottleneck(net, net.source), net.source))
    plan = chain_convolutions(naive)
    check_plan(plan)
    (chain,) = plan.ops
    assert chain.links == naive.ops
    assert chain.reads == (net.source, net.source)
    assert set(plan.tensors) == {net.source, chain.out}
    assert chain.out == naive.ops[-1].out


def test_consecutive_bottlenecks_become_consecutive_chains():
    net = Network()
    tensor = bottleneck(net, net.source, stride=2)
    tensor = net.add(bottleneck(net, tensor), tensor)
    plan = chain_convolutions(fused(net, net.conv(tensor, 5, 1)))
    check_plan(plan)
    assert lengths(plan) == [3, 3, 1]


def test_a_chain_may_lack_either_pointwise_convolution():
    net = Network()
    first = net.conv(net.conv(net.source, is_depthwise=True), 6, 1)
    second = net.conv(net.conv(first, is_depthwise=True), is_depthwise=True)
    last = net.conv(net.conv(second, 5, 1), 3, 3)
    plan = chain_convolutions(fused(net, last))
    check_plan(plan)
    assert lengths(plan) == [2, 1, 2, 1]


def test_memory_of_the_input_is_kept_until_the_last_block():
    net = Network()
    plan = optimise(net.plan(bottleneck(net, net.source)), PASSES)
    check_plan(plan)
    (chain,) = plan.ops
    assert set(plan.arena.offsets) == {net.source, chain.out}


@pytest.mark.parametrize("side", [6, 7, 20])
def test_results_are_unchanged(side):
    net = Network(side=side)
    tensor = bottleneck(net, net.source)
    for stride in (1, 2, 1):
        made = bottleneck(net, tensor, stride=stride)
        tensor = net.add(made, tensor) if stride == 1 else made
    beside = net.concat(tensor, net.conv(tensor, 3, 1))
    naive = net.plan(bottleneck(net, beside), tensor)
    fast = optimise(naive, PASSES)
    check_plan(fast)
    assert sum(isinstance(op, Chain) for op in fast.ops) == 5
    assert_same_numbers(naive, fast)


def second_reader(net):
    wide = net.conv(net.source, 8, 1)
    deep = net.conv(wide, is_depthwise=True)
    return net.plan(net.conv(deep, 4, 1), net.activate(wide), net.pool(deep))


def kept_middle(net):
    wide = net.conv(net.source, 8, 1)
    return net.plan(wide, net.conv(wide, is_depthwise=True))


def residual_in_the_middle(net):
    deep = net.add(net.conv(net.source, is_depthwise=True), net.source)
    return net.plan(net.conv(deep, 6, 1))


def pool_in_the_middle(net):
    return net.plan(net.conv(net.pool(net.conv(net.source, is_depthwise=True)), 6, 1))


def something_between(net):
    wide = net.conv(net.source, 8, 1)
    other = net.conv(net.source, 3, 3)
    return net.plan(net.conv(wide, is_depthwise=True), other)


def no_depthwise(net):
    return net.plan(net.conv(net.conv(net.source, 8, 1), 4, 1))


def large_kernel_before(net):
    return net.plan(net.conv(net.conv(net.source, 8, 3), is_depthwise=True))


def state_as_a_middle(net):
    state = net.state(Shape(4, 6, 6))
    net.store(state, net.conv(net.source, is_depthwise=True))
    return net.plan(net.conv(state, 4, 1))


@pytest.mark.parametrize(
    "build",
    [
        second_reader,
        kept_middle,
        residual_in_the_middle,
        pool_in_the_middle,
        something_between,
        no_depthwise,
        large_kernel_before,
        state_as_a_middle,
    ],
    ids=lambda build: build.__name__,
)
def test_the_plan_is_unchanged(build):
    plan = optimise(build(Network()), ["fuse_residual", "fuse_pool"])
    assert chain_convolutions(plan).ops == plan.ops


@pytest.mark.parametrize("change", [{"signed": True}, {"groups": 2}])
def test_other_kinds_of_convolution_are_not_chained(change):
    net = Network()
    plan = net.plan(net.conv(net.conv(net.source, is_depthwise=True), 6, 1))
    depthwise, pointwise = plan.ops
    plan = replace(plan, ops=(depthwise, replace(pointwise, **change)))
    assert chain_convolutions(plan).ops == plan.ops
