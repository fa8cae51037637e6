"""Blocks that many networks share; each function returns the index of its last layer."""

from __future__ import annotations

from collections.abc import Sequence

from tools.networks.cfg_builder import CfgBuilder


def residual(net: CfgBuilder, narrow: int, wide: int) -> int:
    """Add a 1x1 and a 3x3 convolution with a shortcut."""
    start = net.last
    net.conv(narrow)
    net.conv(wide, 3)
    return net.add(start)


def alternate(net: CfgBuilder, narrow: int, wide: int, count: int) -> int:
    """Add `count` convolutions, alternately narrow 1x1 and wide 3x3."""
    for index in range(count):
        if index % 2:
            net.conv(wide, 3)
        else:
            net.conv(narrow)
    return net.last


def spatial_pyramid(net: CfgBuilder, *, largest_first: bool = True) -> int:
    """Add SPP: the map concatenated with its max pools of sizes 5, 9 and 13."""
    start = net.last
    found = [start]
    for size in (5, 9, 13):
        if size > 5:
            net.route(start)
        found.append(net.maxpool(size, 1))
    return net.route(*(found[::-1] if largest_first else found))


def csp(net: CfgBuilder, out: int, width: int, count: int, *, inner: int = 0) -> int:
    """Add CSP: a branch of `count` residuals and a bypass, concatenated."""
    start = net.last
    bypass = net.conv(width)
    net.route(start)
    net.conv(width)
    for _ in range(count):
        residual(net, inner or width, width)
    net.conv(width)
    net.route(net.last, bypass)
    return net.conv(out)


def csp_plain(net: CfgBuilder, width: int, count: int) -> int:
    """Add CSP without residuals, for the necks of the scaled networks."""
    start = net.conv(width)
    bypass = net.conv(width)
    net.route(start)
    alternate(net, width, width, 2 * count)
    net.route(net.last, bypass)
    return net.conv(width)


def csp_spatial_pyramid(
    net: CfgBuilder, width: int, *, pairs: int = 1, largest_first: bool = True
) -> int:
    """Add CSP around a spatial pyramid that is followed by `pairs` pairs of convolutions."""
    start = net.last
    bypass = net.conv(width)
    net.route(start)
    alternate(net, width, width, 3)
    spatial_pyramid(net, largest_first=largest_first)
    alternate(net, width, width, 2 * pairs)
    net.route(net.last, bypass)
    return net.conv(width)


def upsample_and_concat(net: CfgBuilder, width: int, layer: int) -> int:
    """Upsample the map and concatenate it with a 1x1 convolution of `layer` to `width` channels."""
    net.conv(width)
    upsampled = net.upsample()
    net.route(layer)
    net.conv(width)
    return net.route(net.last, upsampled)


def csp_half(net: CfgBuilder, width: int) -> int:
    """Add CSP of the tiny networks, whose branch takes the second half of the channels."""
    start = net.conv(width, 3)
    net.half(start)
    first = net.conv(width // 2, 3)
    net.conv(width // 2, 3)
    net.route(net.last, first)
    branch = net.conv(width)
    net.route(start, net.last)
    net.maxpool()
    return branch


def elan(net: CfgBuilder, width: int, out: int, *, count: int = 4) -> int:
    """Add ELAN: every second output of a chain of 3x3 convolutions, concatenated with a bypass."""
    start = net.last
    bypass = net.conv(width)
    net.route(start)
    chain = [net.conv(width), *(net.conv(width, 3) for _ in range(count))]
    net.route(*chain[::-2], bypass)
    return net.conv(out)


def downsample(net: CfgBuilder, width: int, *laterals: int) -> int:
    """Concatenate a max pool, a strided convolution and `laterals`, all of half the size."""
    start = net.last
    net.maxpool()
    pooled = net.conv(width)
    net.route(start)
    net.conv(width)
    net.conv(width, 3, 2)
    return net.route(net.last, pooled, *laterals)


def bottleneck(net: CfgBuilder, width: int, out: int, *, stride: int = 1, groups: int = 1) -> int:
    """Add ResNet's bottleneck: 1x1, 3x3 and 1x1 convolutions with a shortcut."""
    start = net.last
    net.conv(width)
    net.conv(width, 3, stride, groups=groups)
    net.conv(out, activation="linear")
    return net.add(start, "leaky")


def predict(
    net: CfgBuilder,
    classes: int,
    *,
    anchors: Sequence[int],
    mask: Sequence[int],
    activation: str = "linear",
    **options: int | float | str,
) -> int:
    """Add the last convolution of a head, and [yolo]."""
    net.conv(len(mask) * (5 + classes), activation=activation, batch_norm=False)
    return net.layer(
        "yolo",
        mask=mask,
        anchors=anchors,
        classes=classes,
        num=len(anchors) // 2,
        **options,
    )
