from dataclasses import replace

import pytest

from engine.passes.fuse_activation import fuse_activation
from engine.passes.fuse_residual import fuse_residual
from engine.plan.ops import Add, Conv2d, MatMul, Multiply
from engine.plan.shapes import Shape
from tests.passes.check import check_plan
from tests.passes.networks import Network

BEFORE = {
    Conv2d: lambda net: net.conv(net.source),
    MatMul: lambda net: net.dense(net.source, 5),
    Add: lambda net: net.add(net.source, net.source),
    Multiply: lambda net: net.multiply(net.source, net.source),
}


@pytest.mark.parametrize("kind", BEFORE, ids=lambda kind: kind.__name__)
def test_the_previous_op_takes_the_activation(kind):
    net = Network()
    naive = net.plan(net.activate(BEFORE[kind](net), "mish"))
    plan = fuse_activation(naive)
    check_plan(plan)
    before, activate = naive.ops
    fused = replace(before, out=activate.out, activation="mish") if kind is not Conv2d else None
    assert plan.ops == (fused or before.then(activate),)
    assert plan.ops[0].activation == "mish"


def test_an_activation_further_down_is_fused():
    net = Network()
    middle = net.conv(net.source)
    between = net.conv(net.source)
    last = net.activate(middle)
    plan = fuse_activation(net.plan(net.add(between, last)))
    check_plan(plan)
    assert [op.out for op in plan.ops[:2]] == [last, between]


def test_a_second_activation_is_kept():
    net = Network()
    plan = fuse_activation(net.plan(net.activate(net.activate(net.conv(net.source)), "tanh")))
    assert [op.activation for op in plan.ops] == ["leaky", "tanh"]


def second_reader(net):
    middle = net.conv(net.source)
    return net.plan(net.add(net.activate(middle), middle))


def kept_middle(net):
    middle = net.conv(net.source)
    return net.plan(middle, net.activate(middle))


def other_op_before(net):
    return net.plan(net.activate(net.pool(net.source)))


def the_source_before(net):
    return net.plan(net.activate(net.source))


def a_state_before(net):
    state = net.state(Shape(4, 6, 6))
    out = net.activate(state)
    net.store(state, net.source)
    return net.plan(out)


def residual_before(net):
    return fuse_residual(net.plan(net.activate(net.add(net.conv(net.source), net.source))))


@pytest.mark.parametrize(
    "build",
    [
        second_reader,
        kept_middle,
        other_op_before,
        the_source_before,
        a_state_before,
        residual_before,
    ],
    ids=lambda build: build.__name__,
)
def test_the_plan_is_unchanged(build):
    plan = build(Network())
    assert fuse_activation(plan).ops == plan.ops
