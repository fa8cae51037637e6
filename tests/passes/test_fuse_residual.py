from dataclasses import replace

import pytest

from engine.passes.fuse_activation import fuse_activation
from engine.passes.fuse_residual import fuse_residual
from engine.plan.ops import Add
from engine.plan.shapes import Shape
from tests.passes.check import check_plan
from tests.passes.networks import Network


@pytest.mark.parametrize("is_first", [True, False])
def test_a_convolution_adds_a_tensor_computed_before_it(is_first):
    net = Network()
    conv = net.conv(net.source)
    total = net.add(conv, net.source) if is_first else net.add(net.source, conv)
    naive = fuse_activation(net.plan(net.activate(total, "leaky")))
    plan = fuse_residual(naive)
    check_plan(plan)
    op, add = naive.ops
    assert plan.ops == (op.then(replace(add, sources=(conv, net.source))),)
    assert (plan.ops[0].residual, plan.ops[0].last_activation) == (net.source, "leaky")


def test_the_activation_before_the_addition_is_kept():
    net = Network()
    conv = net.activate(net.conv(net.source), "mish")
    naive = fuse_activation(net.plan(net.activate(net.add(conv, net.source), "tanh")))
    (op,) = fuse_residual(naive).ops
    assert (op.activation, op.last_activation) == ("mish", "tanh")


def test_the_later_of_two_convolutions_adds_the_earlier():
    net = Network()
    one, two = net.conv(net.source), net.conv(net.source)
    naive = net.plan(net.add(two, one))
    plan = fuse_residual(naive)
    check_plan(plan)
    first, second = plan.ops
    assert first == naive.ops[0]
    assert (second.weight, second.residual) == (naive.ops[1].weight, one)


def test_a_convolution_moves_behind_its_residual():
    net = Network()
    one = net.conv(net.source)
    two = net.pool(net.source, 3, 1)
    naive = net.plan(net.add(one, two))
    plan = fuse_residual(naive)
    check_plan(plan)
    first, second = plan.ops
    assert first == naive.ops[1]
    assert (second.weight, second.residual) == (naive.ops[0].weight, two)


def test_readers_follow_a_convolution_that_moved():
    net = Network()
    one, two = net.conv(net.source), net.conv(net.source)
    total = net.add(one, net.source)
    middle = net.pool(net.source, 3, 1)
    naive = net.plan(net.add(two, total), middle)
    plan = fuse_residual(naive)
    check_plan(plan)
    assert [op.reads for op in plan.ops[:2]] == [(net.source, net.source), (net.source, total)]


def test_consecutive_shortcuts_are_all_fused():
    net = Network()
    tensor = net.source
    for _ in range(4):
        tensor = net.add(net.conv(net.conv(tensor)), tensor)
    plan = fuse_residual(net.plan(tensor))
    check_plan(plan)
    assert [op.residual is not None for op in plan.ops] == [False, True] * 4


def test_a_shortcut_of_a_shortcut_is_fused_once():
    net = Network()
    conv = net.conv(net.source)
    plan = fuse_residual(net.plan(net.add(net.add(conv, net.source), net.source)))
    check_plan(plan)
    assert [type(op) is Add for op in plan.ops] == [False, True]


def weighted(net):
    return net.plan(net.add(net.conv(net.source), net.source, is_weighted=True))


def three_summands(net):
    return net.plan(net.add(net.conv(net.source), net.source, net.source))


def twice_the_same(net):
    conv = net.conv(net.source)
    return net.plan(net.add(conv, conv))


def second_reader(net):
    conv = net.conv(net.source)
    return net.plan(net.add(conv, net.source), net.activate(conv))


def kept_middle(net):
    conv = net.conv(net.source)
    return net.plan(net.add(conv, net.source), conv)


def fewer_channels(net):
    return net.plan(net.add(net.conv(net.source), net.conv(net.activate(net.source), 3)))


def cut_convolution(net):
    return net.plan(net.add(net.source, net.conv(net.source, 6)))


def state_added(net):
    state = net.state(Shape(4, 6, 6))
    out = net.add(net.conv(net.source), state)
    net.store(state, out)
    return net.plan(out)


def state_read_by_a_convolution_that_would_wait(net):
    state = net.state(Shape(4, 6, 6))
    conv = net.conv(state)
    net.store(state, net.source)
    return net.plan(net.add(conv, net.pool(net.source, 3, 1)))


def no_convolution(net):
    return net.plan(net.add(net.activate(net.source), net.source))


def convolution_that_ends_in_an_activation(net):
    values = net.activate(net.activate(net.conv(net.source)))
    plan = net.plan(net.add(values, net.source))
    conv, first, second, add = plan.ops
    return replace(plan, ops=(conv.then(first).then(second), add))


@pytest.mark.parametrize(
    "build",
    [
        weighted,
        three_summands,
        twice_the_same,
        second_reader,
        kept_middle,
        fewer_channels,
        cut_convolution,
        state_added,
        state_read_by_a_convolution_that_would_wait,
        no_convolution,
        convolution_that_ends_in_an_activation,
    ],
    ids=lambda build: build.__name__,
)
def test_the_plan_is_unchanged(build):
    plan = build(Network())
    assert fuse_residual(plan).ops == plan.ops
