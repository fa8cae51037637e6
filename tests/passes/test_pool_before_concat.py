import pytest

from engine.bundled import folder
from engine.darknet import cfg, graph, lower, random_weights
from engine.passes import optimise
from engine.passes.fuse_activation import fuse_activation
from engine.passes.pool_before_concat import pool_before_concat
from engine.plan.ops import Concat, Conv2d, MaxPool
from tests.passes.check import check_plan
from tests.passes.networks import Network
from tests.passes.test_optimise import assert_same_numbers


def joined_and_pooled(net):
    """Build a pooled concatenation; another convolution reads one of its sources."""
    first = net.activate(net.conv(net.source, 8))
    second = net.activate(net.conv(first, 16))
    return fuse_activation(net.plan(net.pool(net.concat(first, second)), net.conv(first)))


def test_sources_are_pooled_before_the_concatenation():
    naive = joined_and_pooled(Network())
    plan = pool_before_concat(naive)
    check_plan(plan)
    assert_same_numbers(naive, plan)
    pools = [op for op in plan.ops if isinstance(op, MaxPool)]
    (joined,) = (op for op in plan.ops if isinstance(op, Concat))
    assert [op.out.shape.channels for op in pools] == [8, 16]
    assert [part.src for part in joined.parts] == [op.out for op in pools]


def test_a_convolution_with_one_reader_takes_the_pool():
    naive = joined_and_pooled(Network())
    plan = optimise(naive, ("pool_before_concat", "fuse_pool", "elide_copies"))
    check_plan(plan)
    assert_same_numbers(naive, plan)
    assert [op.pool is not None for op in plan.ops if isinstance(op, Conv2d)] == [
        False,
        True,
        False,
    ]
    assert [op.out.shape.channels for op in plan.ops if isinstance(op, MaxPool)] == [8]
    assert not any(isinstance(op, Concat) for op in plan.ops)


def test_a_source_of_another_concatenation_is_not_copied():
    net = Network()
    first, second = net.conv(net.source, 8), net.conv(net.source, 16)
    pooled = net.pool(net.concat(first, second))
    naive = net.plan(pooled, net.concat(second, net.upsample(pooled)))
    before = optimise(naive, ("elide_copies",))
    plan = optimise(naive, ("pool_before_concat", "elide_copies"))
    check_plan(plan)
    assert_same_numbers(naive, plan)
    assert any(isinstance(op, Concat) for op in before.ops)
    assert not any(isinstance(op, Concat) for op in plan.ops)


def test_yolov4_tiny_pools_half_of_its_channels_in_convolutions():
    network = graph.build(cfg.read(folder("cfg") / "yolov4-tiny.cfg"))
    naive = lower.lower(network, random_weights.arrays(network))
    passes = (
        "fold_batchnorm",
        "fuse_activation",
        "pool_before_concat",
        "fuse_pool",
        "elide_copies",
    )
    plan = optimise(naive, passes)
    channels = [op.out.shape.channels for op in plan.ops if isinstance(op, MaxPool)]
    assert channels == [64, 128, 256, 256]
    assert sum(isinstance(op, Conv2d) and op.pool is not None for op in plan.ops) == 2


def read_elsewhere(net):
    joined = net.concat(net.conv(net.source), net.conv(net.source))
    return net.plan(net.pool(joined), net.conv(joined))


def handed_back(net):
    joined = net.concat(net.conv(net.source), net.conv(net.source))
    return net.plan(joined, net.pool(joined))


def some_channels(net):
    conv, other = net.conv(net.source, 8), net.conv(net.source)
    return net.plan(net.pool(net.ranges((conv, 0, 4), (other, 0, 4))), conv)


def the_same_twice(net):
    conv = net.conv(net.source)
    return net.plan(net.pool(net.concat(conv, conv)))


def three_parts(net):
    return net.plan(net.pool(net.concat(*(net.conv(net.source) for _ in range(3)))))


def parts_that_all_have_readers(net):
    first, second = net.conv(net.source), net.conv(net.source)
    pooled = net.pool(net.concat(first, second))
    return net.plan(pooled, net.conv(first), net.conv(second))


def windows_that_overlap(net):
    return net.plan(net.pool(net.concat(net.conv(net.source), net.conv(net.source)), 3, 2))


@pytest.mark.parametrize(
    "build",
    [
        read_elsewhere,
        handed_back,
        some_channels,
        the_same_twice,
        three_parts,
        parts_that_all_have_readers,
        windows_that_overlap,
    ],
)
def test_other_plans_are_unchanged(build):
    plan = build(Network())
    assert pool_before_concat(plan) == plan
