from dataclasses import replace

import pytest

from engine.bundled import folder
from engine.darknet import cfg, graph, lower, random_weights
from engine.passes import optimise
from engine.passes.elide_copies import elide_copies
from engine.passes.fuse_activation import fuse_activation
from engine.passes.fuse_residual import fuse_residual
from engine.passes.merge_siblings import merge_siblings
from engine.plan.build import View
from engine.plan.ops import Concat, Conv2d
from engine.plan.shapes import Shape
from tests.passes.check import check_plan
from tests.passes.networks import Network
from tests.passes.test_optimise import assert_same_numbers


def conv(net, src, filters=4, kind="leaky", **options):
    return net.activate(net.conv(src, filters, 1, **options), kind)


def pair(net, *filters):
    """Build two convolutions of one map, the second through a route of one layer."""
    src = net.conv(net.source, 6)
    first, second = filters or (3, 5)
    return conv(net, src, first), conv(net, net.ranges((src, 0, 6)), second)


def apart(net):
    one, two = pair(net)
    return net.plan(net.conv(one), net.conv(two))


def last_of_a_concatenation(net):
    """Build a block of a cross-stage partial network."""
    one, two = pair(net)
    return net.plan(net.conv(net.concat(net.conv(two, 2), one)))


def first_of_a_concatenation(net):
    one, two = pair(net)
    return net.plan(net.conv(net.concat(two, net.conv(one, 2))))


def both_in_a_concatenation(net):
    """Build a block of an efficient layer aggregation network."""
    one, two = pair(net)
    third = net.conv(two, 2)
    return net.plan(net.conv(net.concat(net.conv(third, 2), third, two, one)))


def three(net):
    src = net.conv(net.source, 6)
    one, two, last = (conv(net, src, filters, has_bias=True) for filters in (1, 2, 3))
    return net.plan(net.conv(net.concat(net.conv(last), one, two)))


def nested(net):
    one, two = pair(net)
    inner = net.concat(one, two)
    return net.plan(net.conv(net.concat(net.conv(net.source, 2), inner)))


@pytest.mark.parametrize(
    "build",
    [
        *(apart, last_of_a_concatenation, first_of_a_concatenation),
        *(both_in_a_concatenation, three, nested),
    ],
    ids=lambda build: build.__name__,
)
def test_siblings_are_merged_without_a_copy(build):
    naive = fuse_activation(build(Network()))
    merged = merge_siblings(naive)
    check_plan(merged)
    assert count(merged) == count(naive) - (2 if build is three else 1)
    assert_same_numbers(naive, merged)
    elided = elide_copies(merged)
    check_plan(elided)
    assert not any(isinstance(op, Concat) for op in elided.ops)
    assert_same_numbers(naive, elided)


def count(plan):
    return sum(isinstance(op, Conv2d) for op in plan.ops)


def elided(net, joined):
    """Return the plan without copies, and the tensor of all ten channels, the root of views."""
    plan = elide_copies(merge_siblings(fuse_activation(net.plan(net.conv(joined)))))
    return plan, replace(joined, shape=Shape(2 + 3 + 5, 6, 6))


def test_the_end_of_a_concatenation_becomes_wider():
    net = Network()
    one, two = pair(net)
    third = net.conv(two, 2)
    joined = net.concat(third, one)
    plan, root = elided(net, joined)
    assert plan.views[third] == View(root, 0)
    assert plan.views[plan.ops[1].out] == View(root, 2)
    assert plan.views[two] == View(root, 2 + 3)
    assert plan.views[joined] == View(root, 0)
    assert one not in plan.tensors  # nothing reads it by itself


def test_the_start_of_a_concatenation_becomes_wider():
    net = Network()
    one, two = pair(net)
    third = net.conv(one, 2)
    joined = net.concat(two, third)
    plan, root = elided(net, joined)
    assert plan.views[plan.ops[1].out] == View(root, 0)
    assert plan.views[one] == View(root, 0)
    assert plan.views[joined] == View(root, 3)
    assert plan.views[third] == View(root, 3 + 5)
    assert two not in plan.tensors


def test_an_output_of_the_plan_may_be_merged():
    net = Network()
    one, two = pair(net)
    naive = fuse_activation(net.plan(one, net.conv(two)))
    merged = merge_siblings(naive)
    check_plan(merged)
    assert count(merged) == count(naive) - 1
    assert_same_numbers(naive, merged)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "merged"), [("yolov4", 5), ("yolov7", 11), ("yolov3", 0)])
def test_known_networks_are_merged_without_a_copy(name, merged):
    network = graph.build(cfg.read(folder("cfg") / f"{name}.cfg"))
    naive = lower.lower(network, random_weights.arrays(network))
    passes = ["fold_batchnorm", "fuse_activation", "fuse_residual", "elide_copies"]
    before, after = (optimise(naive, [*passes, *more]) for more in ([], ["merge_siblings"]))
    check_plan(after)
    assert count(after) == count(before) - merged
    assert not any(isinstance(op, Concat) for op in after.ops)


def other_activations(net):
    src = net.conv(net.source, 6)
    return net.plan(conv(net, src, kind="leaky"), conv(net, src, kind="relu"))


def one_without_a_bias(net):
    src = net.conv(net.source, 6)
    return net.plan(conv(net, src, has_bias=True), conv(net, src))


def other_maps(net):
    return net.plan(conv(net, net.source), conv(net, net.conv(net.source)))


def wide_kernels(net):
    return net.plan(net.conv(net.source), net.conv(net.source))


def residuals(net):
    convs = net.conv(net.source, 4, 1), net.conv(net.source, 4, 1)
    return fuse_residual(net.plan(*(net.add(each, net.source) for each in convs)))


def in_two_concatenations(net):
    one, two = pair(net)
    return net.plan(net.concat(one, net.source), net.concat(net.conv(two), one))


def in_the_middle(net):
    one, two = pair(net)
    return net.plan(net.concat(net.conv(two), one, net.conv(net.source)))


def with_another_between(net):
    one, two = pair(net)
    return net.plan(net.concat(one, net.conv(net.source), two))


def twice_in_one(net):
    one, two = pair(net)
    return net.plan(net.concat(net.conv(two), one, one))


def a_part_of_one(net):
    one, two = pair(net)
    return net.plan(net.ranges((net.conv(two), 0, 4), (one, 0, 2)))


def a_concatenation_of_another(net):
    one, two = pair(net)
    inner = net.concat(net.conv(two), one)
    return net.plan(net.concat(net.conv(inner), inner))


def a_range_of_one(net):
    one, two = pair(net)
    return net.plan(net.conv(net.ranges((one, 0, 2))), net.conv(two))


@pytest.mark.parametrize(
    "build",
    [
        *(other_activations, one_without_a_bias, other_maps, wide_kernels, residuals),
        *(in_two_concatenations, in_the_middle, with_another_between, twice_in_one),
        *(a_part_of_one, a_concatenation_of_another, a_range_of_one),
    ],
    ids=lambda build: build.__name__,
)
def test_other_convolutions_are_kept(build):
    plan = fuse_activation(build(Network()))
    assert merge_siblings(plan).ops == plan.ops
