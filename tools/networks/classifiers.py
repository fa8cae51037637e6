"""ImageNet classifiers; some pool before their last convolution, some after it."""

from __future__ import annotations

from tools.networks import backbones
from tools.networks.blocks import alternate, bottleneck
from tools.networks.cfg_builder import CfgBuilder, network
from tools.networks.yolo_1_2 import extraction as extraction_backbone

Counts = tuple[int, int, int, int]  # number of blocks in each stage


@network("alexnet")
def alexnet() -> CfgBuilder:
    net = _start("alexnet", 227, "relu")
    net.conv(96, 11, 4, batch_norm=False, pad=False)
    net.maxpool(3, 2, padding=0)
    net.conv(256, 5, batch_norm=False)
    net.maxpool(3, 2, padding=0)
    for filters in (384, 384, 256):
        net.conv(filters, 3, batch_norm=False)
    net.maxpool(3, 2, padding=0)
    _fully_connected(net)
    return net


@network("vgg-16")
def vgg_16() -> CfgBuilder:
    net = _start("vgg-16", 256, "relu")
    net.layer("crop", crop_width=224, crop_height=224)
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        net.heading(f"{filters} channels")
        for _ in range(count):
            net.conv(filters, 3, batch_norm=False)
        net.maxpool()
    _fully_connected(net)
    return net


def _fully_connected(net: CfgBuilder) -> None:
    for _ in range(2):
        net.layer("connected", output=4096, activation="relu")
        net.layer("dropout")
    net.layer("connected", output=1000, activation="linear")
    net.layer("softmax")


@network("darknet")
def darknet() -> CfgBuilder:
    net = _start("darknet", 256)
    for filters in (16, 32, 64, 128, 256, 512):
        net.conv(filters, 3)
        net.maxpool()
    net.conv(1024, 3)
    _pool_then_classify(net)
    return net


@network("tiny")
def tiny() -> CfgBuilder:
    net = _start("tiny", 224)
    net.conv(16, 3)
    net.maxpool()
    net.conv(32, 3)
    net.maxpool()
    for narrow, wide in ((16, 128), (32, 256)):
        alternate(net, narrow, wide, 4)
        net.maxpool()
    alternate(net, 64, 512, 4)
    net.conv(128)
    _classify_then_pool(net)
    return net


@network("extraction")
def extraction() -> CfgBuilder:
    net = _start("extraction", 224)
    extraction_backbone(net)
    _classify_then_pool(net, "leaky")
    return net


@network("darknet19")
def darknet19() -> CfgBuilder:
    return _darknet19("darknet19", 256)


@network("darknet19_448")
def darknet19_448() -> CfgBuilder:
    return _darknet19("darknet19_448", 448)


def _darknet19(name: str, size: int) -> CfgBuilder:
    net = _start(name, size)
    backbones.darknet19(net)
    _classify_then_pool(net)
    return net


@network("darknet53")
def darknet53() -> CfgBuilder:
    return _darknet53("darknet53", 256)


@network("darknet53_448")
def darknet53_448() -> CfgBuilder:
    return _darknet53("darknet53_448", 448)


def _darknet53(name: str, size: int) -> CfgBuilder:
    net = _start(name, size)
    backbones.darknet53(net)
    _pool_then_classify(net)
    return net


@network("resnet18")
def resnet18() -> CfgBuilder:
    return _plain_resnet("resnet18", (2, 2, 2, 2))


@network("resnet34")
def resnet34() -> CfgBuilder:
    return _plain_resnet("resnet34", (3, 4, 6, 3))


def _plain_resnet(name: str, counts: Counts) -> CfgBuilder:
    net = _start_resnet(name)
    for step, count in enumerate(counts):
        width = 64 << step
        net.heading(f"{count} x residual of {width} channels")
        for index in range(count):
            start = net.last
            net.conv(width, 3, 2 if step and not index else 1)
            net.conv(width, 3, activation="linear")
            net.add(start, "leaky")
    _pool_then_classify(net)
    return net


@network("resnet50")
def resnet50() -> CfgBuilder:
    return _resnet("resnet50", (3, 4, 6, 3))


@network("resnet101")
def resnet101() -> CfgBuilder:
    return _resnet("resnet101", (3, 4, 23, 3))


@network("resnet152")
def resnet152() -> CfgBuilder:
    return _resnet("resnet152", (3, 8, 36, 3))


@network("resnext50")
def resnext50() -> CfgBuilder:
    return _resnext("resnext50", (3, 4, 6, 3), first=128, widening=2)


@network("resnext101-32x4d")
def resnext101() -> CfgBuilder:
    return _resnext("resnext101-32x4d", (3, 4, 23, 3), first=64, widening=8)


@network("resnext152-32x4d")
def resnext152() -> CfgBuilder:
    return _resnext("resnext152-32x4d", (3, 8, 36, 3), first=64, widening=8)


def _resnet(name: str, counts: Counts) -> CfgBuilder:
    net = _start_resnet(name)
    _bottlenecks(net, counts, first=64, widening=4)
    if name == "resnet50":
        _pool_then_classify(net)  # as published; the order makes no difference to the result
    else:
        _classify_then_pool(net)
    return net


def _resnext(name: str, counts: Counts, *, first: int, widening: int) -> CfgBuilder:
    net = _start_resnet(name)
    _bottlenecks(net, counts, first=first, widening=widening, groups=32)
    _pool_then_classify(net)
    return net


def _bottlenecks(
    net: CfgBuilder, counts: Counts, *, first: int, widening: int, groups: int = 1
) -> None:
    for step, count in enumerate(counts):
        width = first << step
        net.heading(f"{count} x bottleneck of {width} channels")
        for index in range(count):
            stride = 2 if step and not index else 1
            bottleneck(net, width, width * widening, stride=stride, groups=groups)


def _start_resnet(name: str) -> CfgBuilder:
    net = _start(name, 256)
    net.conv(64, 7, 2)
    net.maxpool()
    return net


@network("densenet201")
def densenet201() -> CfgBuilder:
    net = _start("densenet201", 256)
    net.conv(64, 7, 2)
    net.maxpool()
    for count, out in ((6, 128), (12, 256), (48, 512), (32, 0)):
        net.heading(f"{count} x 32 more channels, concatenated with the map")
        for _ in range(count):
            before = net.last
            net.conv(128)
            net.conv(32, 3)
            net.route(net.last, before)
        if out:
            net.conv(out)
            net.maxpool()
    _classify_then_pool(net)
    return net


def _start(name: str, size: int, activation: str = "leaky") -> CfgBuilder:
    return CfgBuilder(f"{name}: 1000 ImageNet classes.", size=size, activation=activation)


def _classify_then_pool(net: CfgBuilder, activation: str = "linear") -> None:
    net.conv(1000, activation=activation, batch_norm=False)
    net.layer("avgpool")
    net.layer("softmax")


def _pool_then_classify(net: CfgBuilder) -> None:
    net.layer("avgpool")
    net.conv(1000, activation="linear", batch_norm=False)
    net.layer("softmax")
