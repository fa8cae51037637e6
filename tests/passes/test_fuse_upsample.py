from dataclasses import replace

import pytest

from engine.passes.fuse_residual import fuse_residual
from engine.passes.fuse_upsample import fuse_upsample
from engine.plan.ops import Upsample
from tests.passes.check import check_plan
from tests.passes.networks import Network
from tests.passes.test_optimise import assert_same_numbers


def test_an_upsampling_is_fused():
    net = Network()
    naive = net.plan(net.upsample(net.conv(net.source, 8)))
    conv, upsample = naive.ops
    plan = fuse_upsample(naive)
    check_plan(plan)
    assert_same_numbers(naive, plan)
    assert plan.ops == (conv.then(upsample),)
    assert plan.ops[0].grid == conv.out.shape
    assert plan.ops[0].upsample == upsample


def read_twice(net):
    conv = net.conv(net.source)
    return net.plan(net.upsample(conv), net.conv(conv))


def handed_back(net):
    conv = net.conv(net.source)
    return net.plan(net.upsample(conv), conv)


def behind_a_pool(net):
    return net.plan(net.upsample(net.pool(net.conv(net.source))))


def behind_a_residual(net):
    return fuse_residual(net.plan(net.upsample(net.add(net.conv(net.source), net.source))))


def scaled(net):
    plan = net.plan(net.upsample(net.conv(net.source)))
    conv, upsample = plan.ops
    assert isinstance(upsample, Upsample)
    return replace(plan, ops=(conv, replace(upsample, scale=0.5)))


@pytest.mark.parametrize(
    "made", [read_twice, handed_back, behind_a_pool, behind_a_residual, scaled]
)
def test_other_pairs_are_kept(made):
    plan = made(Network())
    assert fuse_upsample(plan) == plan
