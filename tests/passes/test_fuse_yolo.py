import pytest

from engine.passes.fuse_residual import fuse_residual
from engine.passes.fuse_yolo import fuse_yolo
from tests.passes.check import check_plan
from tests.passes.networks import Network


def test_the_output_of_a_detection_layer_is_fused():
    net = Network()
    naive = net.plan(net.yolo(net.conv(net.source, 7)))
    conv, yolo = naive.ops
    plan = fuse_yolo(naive)
    check_plan(plan)
    assert plan.ops == (conv.then(yolo),)
    assert plan.ops[0].yolo == yolo


def read_twice(net):
    conv = net.conv(net.source, 7)
    return net.plan(net.yolo(conv), net.conv(conv))


def handed_back(net):
    conv = net.conv(net.source, 7)
    return net.plan(net.yolo(conv), conv)


def behind_a_pool(net):
    return net.plan(net.yolo(net.pool(net.conv(net.source, 7))))


def behind_a_residual(net):
    return fuse_residual(
        net.plan(net.yolo(net.add(net.conv(net.source, 7), net.conv(net.source, 7))))
    )


@pytest.mark.parametrize("made", [read_twice, handed_back, behind_a_pool, behind_a_residual])
def test_other_pairs_are_kept(made):
    plan = made(Network())
    assert fuse_yolo(plan) == plan
