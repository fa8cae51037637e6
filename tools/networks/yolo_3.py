"""YOLOv3 and what was made of it: three heads on darknet53, two on the tiny network."""

from __future__ import annotations

from collections.abc import Callable

from tools.networks import darknets
from tools.networks.blocks import alternate, predict, spatial_pyramid
from tools.networks.text import Text, network

ANCHORS = (10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326)
BDD = (7, 10, 14, 24, 27, 43, 32, 97, 57, 64, 92, 109, 73, 175, 141, 178, 144, 291)
TINY = (10, 14, 23, 27, 37, 58, 81, 82, 135, 169, 344, 319)

Head = Callable[[Text, tuple[int, int, int]], int]


@network("yolov3")
def yolov3() -> Text:
    return _yolov3("yolov3: darknet53, three heads over 80 COCO classes.", 416, _yolo(80))


@network("yolov3-spp")
def yolov3_spp() -> Text:
    about = "yolov3-spp: yolov3 with a spatial pyramid before its first head."
    return _yolov3(about, 608, _yolo(80), pyramid=True)


@network("yolov3-openimages")
def yolov3_openimages() -> Text:
    about = "yolov3-openimages: darknet53, three heads over 601 classes of OpenImages."
    return _yolov3(about, 608, _yolo(601))


@network("yolov3-voc")
def yolov3_voc() -> Text:
    return _yolov3("yolov3-voc: darknet53, three heads over 20 VOC classes.", 416, _yolo(20))


@network("Gaussian_yolov3_BDD")
def gaussian_yolov3_bdd() -> Text:
    about = "Gaussian_yolov3_BDD: each number of a box comes with its uncertainty; 10 BDD classes."

    def head(net: Text, mask: tuple[int, int, int]) -> int:
        net.conv(3 * (9 + 10), activation="linear", normalised=False)
        return net.layer("Gaussian_yolo", mask=mask, anchors=BDD, classes=10, num=9)

    return _yolov3(about, 512, head)


def _yolo(classes: int) -> Head:
    return lambda net, mask: predict(net, classes, anchors=ANCHORS, mask=mask)


def _yolov3(about: str, size: int, head: Head, *, pyramid: bool = False) -> Text:
    net = Text(about, size=size)
    third, fourth = darknets.darknet53(net)
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
        net.heading(f"{objects} objects: the map before, enlarged, beside layer {finer}")
        net.route(deep)
        net.conv(width)
        net.upsample()
        net.route(net.last, finer)
        deep = alternate(net, width, 2 * width, 5)
        net.conv(2 * width, 3)
        head(net, mask)
    return net


@network("yolov3-tiny")
def yolov3_tiny() -> Text:
    net = Text("yolov3-tiny: two heads over 80 COCO classes.", size=416)
    fine = darknets.tiny(net)
    net.conv(1024, 3)
    deep = net.conv(256)
    net.heading("large objects")
    net.conv(512, 3)
    predict(net, 80, anchors=TINY, mask=(3, 4, 5))
    net.heading(f"small objects: the deep map, enlarged, beside layer {fine}")
    net.route(deep)
    net.conv(128)
    net.upsample()
    net.route(net.last, fine)
    net.conv(256, 3)
    # what the published weights were trained with; the text published beside them says 0, 1, 2
    predict(net, 80, anchors=TINY, mask=(1, 2, 3))
    return net


@network("yolov3-tiny-prn")
def yolov3_tiny_prn() -> Text:
    net = Text("yolov3-tiny-prn: sums of unequal maps instead of joining them.", size=416)
    fine = darknets.tiny(net)
    before = net.last - 1
    net.conv(512, 3)
    net.add(before, "leaky")
    partial_residual_heads(net, fine)
    return net


def partial_residual_heads(net: Text, fine: int) -> None:
    """Two heads whose sums take as many channels as both maps have."""
    net.heading("large objects")
    deep = net.conv(256)
    net.conv(256, 3)
    net.add(deep, "leaky")
    predict(net, 80, anchors=TINY, mask=(3, 4, 5))
    net.heading(f"small objects: the deep map, enlarged, plus layer {fine}")
    net.route(deep + 1)
    net.conv(128)
    net.upsample()
    start = net.add(fine, "leaky")
    net.conv(128, 3)
    net.add(start - 1, "leaky")
    net.add(fine, "leaky")
    predict(net, 80, anchors=TINY, mask=(1, 2, 3))
