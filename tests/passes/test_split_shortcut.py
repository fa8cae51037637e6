import pytest

from engine.bundled import folder
from engine.darknet import cfg, graph, lower, random_weights
from engine.passes import optimise
from engine.passes.fuse_activation import fuse_activation
from engine.passes.split_shortcut import split_shortcut
from engine.plan.ops import Add, Concat, Conv2d
from engine.plan.shapes import Shape
from tests.passes.check import check_plan
from tests.passes.networks import Network
from tests.passes.test_optimise import assert_same_numbers


def widening(net, filters=20, **options):
    """Build the first block of a residual network."""
    conv = net.activate(net.conv(net.source, filters, **options), "mish")
    return fuse_activation(net.plan(net.activate(net.add(conv, net.source), "relu")))


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("filters", [9, 16, 20])
def test_filters_with_a_residual_are_split_from_the_others(filters, has_bias):
    naive = widening(Network(8), filters, has_bias=has_bias)
    plan = split_shortcut(naive)
    check_plan(plan)
    assert_same_numbers(naive, plan)
    first, add, rest, joined = plan.ops
    assert isinstance(add, Add)
    assert isinstance(joined, Concat)
    assert (first.out.shape.channels, rest.out.shape.channels) == (8, filters - 8)
    assert (first.activation, first.last_activation) == ("mish", "linear")
    assert (rest.activation, rest.last_activation) == ("mish", "relu")
    assert add.activation == "relu"


def test_no_addition_and_no_copy_remains():
    passes = ("split_shortcut", "fuse_residual", "elide_copies")
    naive = widening(Network(8))
    plan = optimise(naive, passes)
    check_plan(plan)
    assert_same_numbers(naive, plan)
    assert [(type(op), op.residual) for op in plan.ops] == [
        (Conv2d, naive.source),
        (Conv2d, None),
    ]


def test_resnet50_adds_to_the_first_channels_of_its_first_block():
    network = graph.build(cfg.read(folder("cfg") / "resnet50.cfg"))
    naive = lower.lower(network, random_weights.arrays(network))
    before = [op for op in naive.ops if isinstance(op, Add)]
    passes = ("fold_batchnorm", "fuse_activation", "split_shortcut", "fuse_residual")
    after = [op for op in optimise(naive, passes).ops if isinstance(op, Add)]
    # the others are at the start of a stage and add a map of another height and width
    assert (len(before), len(after)) == (16, 3)


def as_many_channels(net):
    return net.plan(net.add(net.conv(net.source, 8), net.source))


def more_channels(net):
    return net.plan(net.add(net.conv(net.source, 4), net.source))


def other_sides(net):
    return net.plan(net.add(net.conv(net.source, 64, stride=2), net.source))


def no_eights(net):
    return net.plan(net.add(net.conv(net.source, 16), net.conv(net.source, 4)))


def weighted(net):
    return net.plan(net.add(net.conv(net.source, 16), net.source, is_weighted=True))


def second_reader(net):
    conv = net.conv(net.source, 16)
    return net.plan(net.add(conv, net.source), net.activate(conv))


def the_convolution_has_fewer(net):
    wide = net.concat(net.source, net.source)
    return net.plan(net.add(wide, net.conv(net.source, 8)))


def groups(net):
    wide = net.concat(net.source, net.source)
    return net.plan(net.add(net.conv(wide, is_depthwise=True), net.source))


def state_added(net):
    state = net.state(Shape(8, 6, 6))
    out = net.add(net.conv(net.source, 16), state)
    net.store(state, net.source)
    return net.plan(out)


@pytest.mark.parametrize(
    "build",
    [
        *(as_many_channels, more_channels, other_sides, no_eights, weighted, second_reader),
        *(the_convolution_has_fewer, groups, state_added),
    ],
)
def test_other_additions_are_kept(build):
    naive = build(Network(8))
    assert split_shortcut(naive) == naive
