"""YOLOv3 and its variants: three heads on darknet53, two on the tiny backbone."""

from __future__ import annotations

from collections.abc import Callable

from tools.networks import backbones
from tools.networks.blocks import alternate, predict, spatial_pyramid
from tools.networks.cfg_builder import CfgBuilder, network

ANCHORS = (10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326)
BDD = (7, 10, 14, 24, 27, 43, 32, 97, 57, 64, 92, 109, 73, 175, 141, 178, 144, 291)
TINY = (10, 14, 23, 27, 37, 58, 81, 82, 135, 169, 344, 319)

Head = Callable[[CfgBuilder, tuple[int, int, int]], int]


@network("yolov3")
def yolov3() -> CfgBuilder:
    return _yolov3("yolov3: darknet53, three heads over 80 COCO classes.", 416, _yolo(80))


@network("yolov3-spp")
def yolov3_spp() -> CfgBuilder:
    title = "yolov3-spp: yolov3 with a spatial pyramid before its first head."
    return _yolov3(title, 608, _yolo(80), pyramid=True)


@network("yolov3-openimages")
def yolov3_openimages() -> CfgBuilder:
    title = "yolov3-openimages: darknet53, three heads over 601 classes of OpenImages."
    return _yolov3(title, 608, _yolo(601))


@network("yolov3-voc")
def yolov3_voc() -> CfgBuilder:
    return _yolov3("yolov3-voc: darknet53, three heads over 20 VOC classes.", 416, _yolo(20))


@network("Gaussian_yolov3_BDD")
def gaussian_yolov3_bdd() -> CfgBuilder:
    title = "Gaussian_yolov3_BDD: each box coordinate has an uncertainty; 10 BDD classes."

    def head(net: CfgBuilder, mask: tuple[int, int, int]) -> int:
        net.conv(3 * (9 + 10), activation="linear", batch_norm=False)
        return net.layer("Gaussian_yolo", mask=mask, anchors=BDD, classes=10, num=9)

    return _yolov3(title, 512, head)


def _yolo(classes: int) -> Head:
    return lambda net, mask: predict(net, classes, anchors=ANCHORS, mask=mask)


def _yolov3(title: str, size: int, head: Head, *, pyramid: bool = False) -> CfgBuilder:
    net = CfgBuilder(title, size=size)
    third, fourth = backbones.darknet53(net)
    net.heading("large objects")
    if pyramid:
        alternate(net, 512, 1024, 3)
        spatial_pyramid(net)
        deep = alternate(net, 512, 1024, 3)
    else:
        deep = alternate(net, 512, 1024, 5)
    net.conv(1024, 3)
    head(net, (6, 7, 8))
    for width, finer, mask, objects in (
        (256, fourth, (3, 4, 5), "medium"),
        (128, third, (0, 1, 2), "small"),
    ):
        net.heading(f"{objects} objects: previous map, upsampled, concatenated with layer {finer}")
        net.route(deep)
        net.conv(width)
        net.upsample()
        net.route(net.last, finer)
        deep = alternate(net, width, 2 * width, 5)
        net.conv(2 * width, 3)
        head(net, mask)
    return net


@network("yolov3-tiny")
def yolov3_tiny() -> CfgBuilder:
    net = CfgBuilder("yolov3-tiny: two heads over 80 COCO classes.", size=416)
    fine = backbones.tiny(net)
    net.conv(1024, 3)
    deep = net.conv(256)
    net.heading("large objects")
    net.conv(512, 3)
    predict(net, 80, anchors=TINY, mask=(3, 4, 5))
    net.heading(f"small objects: the deep map, upsampled, concatenated with layer {fine}")
    net.route(deep)
    net.conv(128)
    net.upsample()
    net.route(net.last, fine)
    net.conv(256, 3)
    # The published weights were trained with this mask; the published .cfg says 0, 1, 2.
    predict(net, 80, anchors=TINY, mask=(1, 2, 3))
    return net


@network("yolov3-tiny-prn")
def yolov3_tiny_prn() -> CfgBuilder:
    net = CfgBuilder("yolov3-tiny-prn: partial residuals instead of concatenations.", size=416)
    fine = backbones.tiny(net)
    before = net.last - 1
    net.conv(512, 3)
    net.add(before, "leaky")
    partial_residual_heads(net, fine)
    return net


def partial_residual_heads(net: CfgBuilder, fine: int) -> None:
    """Add two heads with partial residuals, which add as many channels as both maps have."""
    net.heading("large objects")
    deep = net.conv(256)
    net.conv(256, 3)
    net.add(deep, "leaky")
    predict(net, 80, anchors=TINY, mask=(3, 4, 5))
    net.heading(f"small objects: the deep map, upsampled, plus layer {fine}")
    net.route(deep + 1)
    net.conv(128)
    net.upsample()
    start = net.add(fine, "leaky")
    net.conv(128, 3)
    net.add(start - 1, "leaky")
    net.add(fine, "leaky")
    predict(net, 80, anchors=TINY, mask=(1, 2, 3))
