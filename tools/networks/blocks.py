"""Groups of layers that many networks share; each returns the number of its last layer."""

from __future__ import annotations

from collections.abc import Sequence

from tools.networks.text import Text


def residual(net: Text, narrow: int, wide: int) -> int:
    """Squeeze, widen, add what came in."""
    start = net.last
    net.conv(narrow)
    net.conv(wide, 3)
    return net.add(start)


def alternate(net: Text, narrow: int, wide: int, count: int) -> int:
    """`count` convolutions, narrow 1x1 and wide 3x3 by turns."""
    for index in range(count):
        if index % 2:
            net.conv(wide, 3)
        else:
            net.conv(narrow)
    return net.last


def spatial_pyramid(net: Text, *, largest_first: bool = True) -> int:
    """The map itself and its maxima in three growing windows, side by side."""
    start = net.last
    found = [start]
    for size in (5, 9, 13):
        if size > 5:
            net.route(start)
        found.append(net.maxpool(size, 1))
    return net.route(*(found[::-1] if largest_first else found))


def cross_stage(net: Text, out: int, width: int, count: int, *, inner: int = 0) -> int:
    """CSP: one branch of `count` residuals beside one that passes by, joined."""
    start = net.last
    beside = net.conv(width)
    net.route(start)
    net.conv(width)
    for _ in range(count):
        residual(net, inner or width, width)
    net.conv(width)
    net.route(net.last, beside)
    return net.conv(out)


def cross_stage_plain(net: Text, width: int, count: int) -> int:
    """CSP without residuals, as the necks of the scaled networks have it."""
    start = net.conv(width)
    beside = net.conv(width)
    net.route(start)
    alternate(net, width, width, 2 * count)
    net.route(net.last, beside)
    return net.conv(width)


def cross_stage_pyramid(
    net: Text, width: int, *, pairs: int = 1, largest_first: bool = True
) -> int:
    """CSP around a spatial pyramid, with `pairs` of convolutions behind it."""
    start = net.last
    beside = net.conv(width)
    net.route(start)
    alternate(net, width, width, 3)
    spatial_pyramid(net, largest_first=largest_first)
    alternate(net, width, width, 2 * pairs)
    net.route(net.last, beside)
    return net.conv(width)


def enlarge_beside(net: Text, width: int, layer: int) -> int:
    """The map at twice its size, joined with that layer squeezed to as many channels."""
    net.conv(width)
    enlarged = net.upsample()
    net.route(layer)
    net.conv(width)
    return net.route(net.last, enlarged)


def cross_stage_half(net: Text, width: int) -> int:
    """The CSP block of the tiny networks: the second half of the channels takes the longer way."""
    start = net.conv(width, 3)
    net.half(start)
    first = net.conv(width // 2, 3)
    net.conv(width // 2, 3)
    net.route(net.last, first)
    short = net.conv(width)
    net.route(start, net.last)
    net.maxpool()
    return short


def elan(net: Text, width: int, out: int, *, count: int = 4) -> int:
    """A chain of 3x3 convolutions of which every second is kept, joined with one that passes by."""
    start = net.last
    beside = net.conv(width)
    net.route(start)
    chain = [net.conv(width), *(net.conv(width, 3) for _ in range(count))]
    net.route(*chain[::-2], beside)
    return net.conv(out)


def shrink(net: Text, width: int, *beside: int) -> int:
    """Half the size, by a maximum on one way and a stride on the other, joined."""
    start = net.last
    net.maxpool()
    pooled = net.conv(width)
    net.route(start)
    net.conv(width)
    net.conv(width, 3, 2)
    return net.route(net.last, pooled, *beside)


def bottleneck(net: Text, width: int, out: int, *, stride: int = 1, groups: int = 1) -> int:
    """ResNet's block: squeeze, look around, widen, add what came in."""
    start = net.last
    net.conv(width)
    net.conv(width, 3, stride, groups=groups)
    net.conv(out, activation="linear")
    return net.add(start, "leaky")


def predict(
    net: Text,
    classes: int,
    *,
    anchors: Sequence[int],
    mask: Sequence[int],
    activation: str = "linear",
    **options: int | float | str,
) -> int:
    """The last convolution of a head and its [yolo]."""
    net.conv(len(mask) * (5 + classes), activation=activation, normalised=False)
    return net.layer(
        "yolo",
        mask=mask,
        anchors=anchors,
        classes=classes,
        num=len(anchors) // 2,
        **options,
    )
