from dataclasses import replace

import pytest

from engine.bundled import folder
from engine.darknet import cfg, graph, lower, random_weights
from engine.passes import optimise
from engine.passes.fuse_activation import fuse_activation
from engine.passes.fuse_gate import fuse_gate
from engine.plan import ops
from engine.plan.ops import AveragePool, Conv2d, Gate, Multiply
from engine.plan.shapes import Shape, Window
from tests.passes.check import check_plan
from tests.passes.networks import Network
from tests.passes.test_optimise import assert_same_numbers
from tests.tails import with_tail


def averaged(net, src, window=None):
    window = window or Window(src.shape.sides[1:])
    return net.builder.emit(AveragePool(net.new(Shape(src.shape.channels), src), src, window))


def block(net, *, kinds=("swish", "logistic"), **options):
    """Return a map, the hidden layer of its squeeze-and-excite block, and the factors."""
    src = net.conv(net.source, 6)
    hidden = net.activate(net.conv(averaged(net, src), 3, 1, has_bias=True), kinds[0])
    factors = net.conv(hidden, 6, 1, **options)
    return src, hidden, net.activate(factors, kinds[1]) if kinds[1] != "linear" else factors


@pytest.mark.parametrize("kinds", [("swish", "logistic"), ("relu", "linear"), ("leaky", "relu6")])
@pytest.mark.parametrize("has_bias", [True, False])
def test_the_dense_layers_of_a_block_become_one_op(kinds, has_bias):
    net = Network()
    src, _, factors = block(net, kinds=kinds, has_bias=has_bias)
    out = net.builder.emit(Multiply(net.new(src.shape, src), src, factors))
    naive = fuse_activation(net.plan(out))
    plan = fuse_gate(naive)
    check_plan(plan)
    conv, gate, multiply = plan.ops
    assert (gate.src, gate.out) == (conv.out, multiply.factor)
    assert (gate.squeeze_activation, gate.activation) == kinds
    assert (gate.expand_bias is not None) == has_bias
    assert_same_numbers(naive, plan)


def test_every_block_of_enet_becomes_one_op():
    network = graph.build(cfg.read(folder("cfg") / "enet-coco.cfg"))
    plan = lower.lower(network, random_weights.arrays(network))
    before, after = (
        optimise(plan, ["fold_batchnorm", "fuse_activation", *more]) for more in ([], ["fuse_gate"])
    )
    check_plan(after)
    blocks = sum(isinstance(op, Multiply) for op in before.ops)
    assert blocks == sum(isinstance(op, Gate) for op in after.ops) == 16
    assert len(before.ops) == len(after.ops) + 2 * blocks


def kept_squeeze(net):
    _, hidden, factors = block(net)
    return net.plan(factors, hidden)


def second_reader_of_the_squeeze(net):
    _, hidden, factors = block(net)
    return net.plan(factors, net.activate(hidden))


def second_reader_of_the_means(net):
    means = averaged(net, net.source)
    return net.plan(net.conv(net.conv(means, 3, 1), 4, 1), net.activate(means))


def part_of_the_map(net):
    means = averaged(net, net.source, Window((5, 6)))
    return net.plan(net.conv(net.conv(means, 3, 1), 4, 1))


def wide_kernel(net):
    return net.plan(net.conv(net.conv(averaged(net, net.source), 3, 1), 4, 3))


def one_convolution(net):
    return net.plan(net.conv(averaged(net, net.source), 3, 1))


def another_op_between(net):
    means = averaged(net, net.source)
    return net.plan(net.conv(net.activate(net.conv(net.activate(means), 3, 1)), 4, 1))


def of_another_op(kind):
    def build(net):
        plan = net.plan(net.conv(net.conv(averaged(net, net.source), 4, 1), 4, 1))
        pool, first, second = plan.ops
        changed = {
            "groups": replace(second, groups=2),
            "signed": replace(second, signed=True),
            "residual": with_tail(second, residual=pool.out),
        }
        return replace(plan, ops=(pool, first, changed[kind]))

    build.__name__ = kind
    return build


@pytest.mark.parametrize(
    "build",
    [
        *(kept_squeeze, second_reader_of_the_squeeze, second_reader_of_the_means),
        *(part_of_the_map, wide_kernel, one_convolution, another_op_between),
        *map(of_another_op, ("groups", "signed", "residual")),
    ],
    ids=lambda build: build.__name__,
)
def test_the_plan_is_unchanged(build):
    plan = fuse_activation(build(Network()))
    assert fuse_gate(plan).ops == plan.ops


def test_every_block_in_a_row_is_fused():
    """Test blocks in a row: each has a mean and factors of its own."""
    net = Network()
    src = net.source
    for _ in range(3):
        factors = net.activate(net.conv(net.conv(averaged(net, src), 2, 1), 4, 1), "logistic")
        src = net.builder.emit(ops.Multiply(net.new(src.shape, src), src, factors))
    plan = fuse_gate(fuse_activation(net.plan(src)))
    check_plan(plan)
    assert [type(op) for op in plan.ops] == [Gate, Multiply] * 3
    assert not any(isinstance(op, Conv2d) for op in plan.ops)


def test_the_input_and_a_state_are_not_the_mean_of_a_map():
    """Test dense layers of tensors that no op of the plan writes."""
    net = Network(side=1)
    of_input = net.conv(net.conv(net.source, 3, 1), 4, 1)
    state = net.state(Shape(5))
    of_state = net.conv(net.conv(state, 3, 1), 5, 1)
    plan = fuse_activation(net.plan(of_input, of_state))
    assert fuse_gate(plan).ops == plan.ops
    assert [type(op) for op in plan.ops] == [Conv2d] * 4
