"""Backbones: darknet19, darknet53 and that of the tiny networks."""

from __future__ import annotations

from tools.networks.blocks import alternate, residual
from tools.networks.cfg_builder import CfgBuilder


def darknet19(net: CfgBuilder) -> int:
    """Add five stages; return the last layer of the fourth."""
    for filters in (32, 64):
        net.conv(filters, 3)
        net.maxpool()
    fine = net.last
    for filters, count in ((128, 3), (256, 3), (512, 5), (1024, 5)):
        net.heading(f"{filters} channels")
        net.conv(filters, 3)
        alternate(net, filters // 2, filters, count - 1)
        if filters < 1024:
            fine = net.last
            net.maxpool()
    return fine


def darknet53(net: CfgBuilder) -> tuple[int, int]:
    """Add five stages of residuals; return the last layers of the third and the fourth."""
    net.conv(32, 3)
    ends = []
    for filters, count in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        net.heading(f"{count} x residual of {filters} channels")
        net.conv(filters, 3, 2)
        for _ in range(count):
            residual(net, filters // 2, filters)
        ends.append(net.last)
    return ends[2], ends[3]


def tiny(net: CfgBuilder) -> int:
    """Add 3x3 convolutions, each with a max pool; return the convolution of 256 channels."""
    for filters in (16, 32, 64, 128, 256):
        net.conv(filters, 3)
        net.maxpool()
    fine = net.last - 1
    net.conv(512, 3)
    net.maxpool(2, 1)
    return fine
