"""The ImageNet classifiers: 1000 numbers at each cell, then their means, or the other way round."""

from __future__ import annotations

from tools.networks import darknets
from tools.networks.blocks import alternate, bottleneck
from tools.networks.text import Text, network
from tools.networks.yolo_1_2 import extraction as extraction_backbone

Counts = tuple[int, int, int, int]  # of blocks at each size of the map


@network("alexnet")
def alexnet() -> Text:
    net = _start("alexnet", 227, "relu")
    net.conv(96, 11, 4, normalised=False, pad=False)
    net.maxpool(3, 2, padding=0)
    net.conv(256, 5, normalised=False)
    net.maxpool(3, 2, padding=0)
    for filters in (384, 384, 256):
        net.conv(filters, 3, normalised=False)
    net.maxpool(3, 2, padding=0)
    _three_connected(net)
    return net


@network("vgg-16")
def vgg_16() -> Text:
    net = _start("vgg-16", 256, "relu")
    net.layer("crop", crop_width=224, crop_height=224)
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        net.heading(f"{filters} channels")
        for _ in range(count):
            net.conv(filters, 3, normalised=False)
        net.maxpool()
    _three_connected(net)
    return net


def _three_connected(net: Text) -> None:
    for _ in range(2):
        net.layer("connected", output=4096, activation="relu")
        net.layer("dropout")
    net.layer("connected", output=1000, activation="linear")
    net.layer("softmax")


@network("darknet")
def darknet() -> Text:
    net = _start("darknet", 256)
    for filters in (16, 32, 64, 128, 256, 512):
        net.conv(filters, 3)
        net.maxpool()
    net.conv(1024, 3)
    _mean_then_classes(net)
    return net


@network("tiny")
def tiny() -> Text:
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
    _classes_then_mean(net)
    return net


@network("extraction")
def extraction() -> Text:
    net = _start("extraction", 224)
    extraction_backbone(net)
    _classes_then_mean(net, "leaky")
    return net


@network("darknet19")
def darknet19() -> Text:
    return _darknet19("darknet19", 256)


@network("darknet19_448")
def darknet19_448() -> Text:
    return _darknet19("darknet19_448", 448)


def _darknet19(name: str, size: int) -> Text:
    net = _start(name, size)
    darknets.darknet19(net)
    _classes_then_mean(net)
    return net


@network("darknet53")
def darknet53() -> Text:
    return _darknet53("darknet53", 256)


@network("darknet53_448")
def darknet53_448() -> Text:
    return _darknet53("darknet53_448", 448)


def _darknet53(name: str, size: int) -> Text:
    net = _start(name, size)
    darknets.darknet53(net)
    _mean_then_classes(net)
    return net


@network("resnet18")
def resnet18() -> Text:
    return _plain_resnet("resnet18", (2, 2, 2, 2))


@network("resnet34")
def resnet34() -> Text:
    return _plain_resnet("resnet34", (3, 4, 6, 3))


def _plain_resnet(name: str, counts: Counts) -> Text:
    net = _start_resnet(name)
    for step, count in enumerate(counts):
        width = 64 << step
        net.heading(f"{count} x residual of {width} channels")
        for index in range(count):
            start = net.last
            net.conv(width, 3, 2 if step and not index else 1)
            net.conv(width, 3, activation="linear")
            net.add(start, "leaky")
    _mean_then_classes(net)
    return net


@network("resnet50")
def resnet50() -> Text:
    return _resnet("resnet50", (3, 4, 6, 3))


@network("resnet101")
def resnet101() -> Text:
    return _resnet("resnet101", (3, 4, 23, 3))


@network("resnet152")
def resnet152() -> Text:
    return _resnet("resnet152", (3, 8, 36, 3))


@network("resnext50")
def resnext50() -> Text:
    return _resnext("resnext50", (3, 4, 6, 3), first=128, widening=2)


@network("resnext101-32x4d")
def resnext101() -> Text:
    return _resnext("resnext101-32x4d", (3, 4, 23, 3), first=64, widening=8)


@network("resnext152-32x4d")
def resnext152() -> Text:
    return _resnext("resnext152-32x4d", (3, 8, 36, 3), first=64, widening=8)


def _resnet(name: str, counts: Counts) -> Text:
    net = _start_resnet(name)
    _bottlenecks(net, counts, first=64, widening=4)
    if name == "resnet50":
        _mean_then_classes(net)  # as published; the order makes no difference to the result
    else:
        _classes_then_mean(net)
    return net


def _resnext(name: str, counts: Counts, *, first: int, widening: int) -> Text:
    net = _start_resnet(name)
    _bottlenecks(net, counts, first=first, widening=widening, groups=32)
    _mean_then_classes(net)
    return net


def _bottlenecks(net: Text, counts: Counts, *, first: int, widening: int, groups: int = 1) -> None:
    for step, count in enumerate(counts):
        width = first << step
        net.heading(f"{count} x bottleneck of {width} channels")
        for index in range(count):
            stride = 2 if step and not index else 1
            bottleneck(net, width, width * widening, stride=stride, groups=groups)


def _start_resnet(name: str) -> Text:
    net = _start(name, 256)
    net.conv(64, 7, 2)
    net.maxpool()
    return net


@network("densenet201")
def densenet201() -> Text:
    net = _start("densenet201", 256)
    net.conv(64, 7, 2)
    net.maxpool()
    for count, out in ((6, 128), (12, 256), (48, 512), (32, 0)):
        net.heading(f"{count} x 32 channels more, beside what is there")
        for _ in range(count):
            before = net.last
            net.conv(128)
            net.conv(32, 3)
            net.route(net.last, before)
        if out:
            net.conv(out)
            net.maxpool()
    _classes_then_mean(net)
    return net


def _start(name: str, size: int, activation: str = "leaky") -> Text:
    return Text(f"{name}: 1000 ImageNet classes.", size=size, activation=activation)


def _classes_then_mean(net: Text, activation: str = "linear") -> None:
    net.conv(1000, activation=activation, normalised=False)
    net.layer("avgpool")
    net.layer("softmax")


def _mean_then_classes(net: Text) -> None:
    net.layer("avgpool")
    net.conv(1000, activation="linear", normalised=False)
    net.layer("softmax")
