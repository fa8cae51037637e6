from itertools import product

import numpy as np
import pytest

from engine.backends import open_device
from engine.bundled import folder
from engine.darknet import cfg, graph, lower, random_weights
from engine.passes.chain_pools import chain_pools
from engine.plan.ops import MaxPool
from engine.plan.shapes import Shape, Window, window_count
from tests.lanes import slow_except
from tests.passes.check import check_plan
from tests.passes.networks import Network

SAME = Window((5, 5), (1, 1), (2, 2, 2, 2))


def windows_of(plan):
    return [op.window.size for op in plan.ops if isinstance(op, MaxPool)]


def test_a_pyramid_becomes_a_chain():
    net = Network(side=15)
    src = net.conv(net.source)
    outs = [net.pool(src, size, 1) for size in (5, 9, 13)]
    plan = chain_pools(net.plan(net.concat(src, *outs)))
    check_plan(plan)
    _, first, second, third, _ = plan.ops
    assert (first.src, first.window) == (src, SAME)
    assert (second.src, second.window, second.out) == (outs[0], SAME, outs[1])
    assert (third.src, third.window, third.out) == (outs[1], SAME, outs[2])


@pytest.mark.slow
def test_the_pyramid_of_yolov4_becomes_a_chain():
    network = graph.build(cfg.read(folder("cfg") / "yolov4.cfg"))
    plan = lower.lower(network, random_weights.arrays(network))
    assert windows_of(plan) == [(5, 5), (9, 9), (13, 13)]
    assert windows_of(chain_pools(plan)) == [(5, 5)] * 3


def test_a_larger_window_that_comes_first_is_kept():
    net = Network(side=9)
    plan = net.plan(net.pool(net.source, 5, 1), net.pool(net.source, 3, 1))
    assert chain_pools(plan) == plan


def test_strides_and_other_maps_are_kept():
    net = Network(side=9)
    other = net.conv(net.source)
    plan = net.plan(
        *(net.pool(net.source, 3, 1), net.pool(other, 5, 1)),
        *(net.pool(net.source, 4, 2), net.pool(net.source, 5, 3)),
    )
    assert chain_pools(plan) == plan


def test_pools_of_a_state_are_kept_as_it_may_change_between_them():
    net = Network(side=9)
    state = net.state(Shape(4, 9, 9))
    first = net.pool(state, 3, 1)
    net.store(state, net.source)
    plan = net.plan(first, net.pool(state, 5, 1))
    assert chain_pools(plan) == plan


def test_equal_pools_are_kept():
    net = Network(side=9)
    plan = net.plan(net.pool(net.source, 3, 1), net.pool(net.source, 3, 1))
    assert chain_pools(plan) == plan


def pooled(net, size, before, after):
    src = net.source
    sides = [window_count(extent, size, 1, before + after) for extent in src.shape.sides[1:]]
    if min(sides) < 1:
        return None
    window = Window((size, size), (1, 1), (before, before, after, after))
    out = net.builder.tensor(Shape(src.shape.channels, *sides))
    return net.builder.emit(MaxPool(out, src, window))


@pytest.mark.slow
@pytest.mark.parametrize("side", slow_except([4], [1, 2, 4, 7]))
def test_values_are_unchanged_with_any_border(side):
    """Test every pair of windows with every border; most of them cannot be chained."""
    device = open_device("cpu:1")
    images = np.random.default_rng(0).normal(size=(1, 1, side, side)).astype(np.float32)
    chained = 0
    for small, large in product(range(1, 5), range(1, 7)):
        borders = product(range(3), range(3), range(4), range(4))
        for small_before, small_after, before, after in borders:
            net = Network(1, side)
            made = (
                pooled(net, small, small_before, small_after),
                pooled(net, large, before, after),
            )
            if None in made:
                continue
            naive = net.plan(*made)
            fast = chain_pools(naive)
            if fast == naive:
                continue
            chained += 1
            for got, want in zip(
                *(device.compile(plan).forward(images) for plan in (fast, naive)), strict=True
            ):
                np.testing.assert_array_equal(got, want)
    device.close()
    assert chained > 20
