"""Backbones of darknet: 19 and 53 layers, and the small one of the tiny networks."""

from __future__ import annotations

from tools.networks.blocks import alternate, residual
from tools.networks.text import Text


def darknet19(net: Text) -> int:
    """Five halvings; the layer before the last of them is returned."""
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


def darknet53(net: Text) -> tuple[int, int]:
    """Five halvings of residuals; the last layers of the third and the fourth are returned."""
    net.conv(32, 3)
    ends = []
    for filters, count in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        net.heading(f"{count} x residual of {filters} channels")
        net.conv(filters, 3, 2)
        for _ in range(count):
            residual(net, filters // 2, filters)
        ends.append(net.last)
    return ends[2], ends[3]


def tiny(net: Text) -> int:
    """3x3 convolutions, each followed by a maximum; the one of 256 channels is returned."""
    for filters in (16, 32, 64, 128, 256):
        net.conv(filters, 3)
        net.maxpool()
    fine = net.last - 1
    net.conv(512, 3)
    net.maxpool(2, 1)
    return fine
