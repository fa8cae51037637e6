from dataclasses import replace

import pytest

from engine.passes.fuse_activation import fuse_activation
from engine.passes.fuse_pool import fuse_pool
from engine.passes.fuse_residual import fuse_residual
from engine.plan.ops import Crop, MaxPool
from engine.plan.shapes import Shape, Window
from tests.passes.check import check_plan
from tests.passes.networks import Network


@pytest.mark.parametrize(
    ("side", "padding"),
    [
        (6, 1),  # darknet's default: padding at the right and bottom that no window reaches
        (6, 0),
        (7, 0),  # the last row and column are left out
    ],
)
def test_a_pool_that_halves_the_map_is_fused(side, padding):
    net = Network(side=side)
    naive = net.plan(net.pool(net.conv(net.source), padding=padding))
    plan = fuse_pool(naive)
    check_plan(plan)
    pool = Window((2, 2), (2, 2))
    assert plan.ops == (naive.ops[0].then(replace(naive.ops[1], window=pool)),)
    assert plan.ops[0].grid == naive.ops[0].out.shape


def test_a_monotonic_activation_may_precede_the_pool():
    net = Network()
    plan = fuse_activation(net.plan(net.pool(net.activate(net.conv(net.source), "leaky"))))
    (op,) = fuse_pool(plan).ops
    assert (op.activation, op.pool) == ("leaky", Window((2, 2), (2, 2)))


def activation_that_falls(net):
    return fuse_activation(net.plan(net.pool(net.activate(net.conv(net.source), "mish"))))


def odd_map_with_a_border(net):
    odd = Network(side=7)
    return odd.plan(odd.pool(odd.conv(odd.source)))


def overlapping_windows(net):
    return net.plan(net.pool(net.conv(net.source), 2, 1))


def wide_windows(net):
    return net.plan(net.pool(net.conv(net.source), 3, 2))


def cells_at_the_left(net):
    return net.plan(net.pool(net.conv(net.source), 2, 2, padding=2))


def odd_width(net):
    return pooled_by_hand(net, (6, 7), Window((2, 2), (2, 2), (0, 0, 0, 1)), (3, 4))


def odd_height(net):
    return pooled_by_hand(net, (7, 6), Window((2, 2), (2, 2), (0, 0, 1, 0)), (4, 3))


def one_cell_above(net):
    return pooled_by_hand(net, (6, 6), Window((2, 2), (2, 2), (1, 0, 0, 0)), (3, 3))


def pooled_by_hand(net, sides, window, out_sides):
    src = net.builder.emit(Crop(net.builder.tensor(Shape(4, *sides)), net.source, 0, 0))
    middle = net.conv(src)
    out = net.builder.tensor(Shape(4, *out_sides))
    return net.plan(net.builder.emit(MaxPool(out, middle, window)))


def second_reader(net):
    middle = net.conv(net.source)
    return net.plan(net.pool(middle), net.activate(middle))


def kept_middle(net):
    middle = net.conv(net.source)
    return net.plan(net.pool(middle), middle)


def residual_before(net):
    return fuse_residual(net.plan(net.pool(net.add(net.conv(net.source), net.source))))


def other_op_before(net):
    return net.plan(net.pool(net.activate(net.source)))


@pytest.mark.parametrize(
    "build",
    [
        activation_that_falls,
        odd_map_with_a_border,
        overlapping_windows,
        wide_windows,
        cells_at_the_left,
        odd_width,
        odd_height,
        one_cell_above,
        second_reader,
        kept_middle,
        residual_before,
        other_op_before,
    ],
    ids=lambda build: build.__name__,
)
def test_the_plan_is_unchanged(build):
    plan = build(Network(side=8))
    assert fuse_pool(plan).ops == plan.ops
