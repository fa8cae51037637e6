"""YOLOv1, YOLOv2 and YOLO9000: one head each."""

from __future__ import annotations

from collections.abc import Sequence

from tools.networks import backbones
from tools.networks.blocks import alternate
from tools.networks.cfg_builder import CfgBuilder, network

COCO = (0.57273, 0.677385, 1.87446, 2.06253, 3.33843, 5.47434, 7.88282, 3.52778, 9.77052, 9.16828)
VOC = (1.3221, 1.73145, 3.19275, 4.00944, 5.05587, 8.09892, 9.47112, 4.84053, 11.2364, 10.0071)
VOC_TINY = (1.08, 1.19, 3.42, 4.41, 6.63, 11.38, 9.42, 5.11, 16.62, 10.52)
YOLO9000 = (0.77871, 1.14074, 3.00525, 4.31277, 9.22725, 9.61974)


@network("yolov1")
def yolov1() -> CfgBuilder:
    net = CfgBuilder("yolov1: 7 x 7 cells with three boxes each, 20 VOC classes.", size=448)
    extraction(net)
    net.conv(1024, 3)
    net.conv(1024, 3, 2)
    net.conv(1024, 3)
    net.conv(1024, 3)
    net.layer("local", filters=256, size=3, pad=1, activation="leaky")
    net.layer("dropout")
    _grid(net, boxes=3)
    return net


@network("yolov1-tiny")
def yolov1_tiny() -> CfgBuilder:
    net = CfgBuilder("yolov1-tiny: 7 x 7 cells with two boxes each, 20 VOC classes.", size=448)
    for filters in (16, 32, 64, 128, 256, 512):
        net.conv(filters, 3)
        net.maxpool()
    net.conv(1024, 3)
    net.conv(256, 3)
    _grid(net, boxes=2)
    return net


def extraction(net: CfgBuilder) -> None:
    """Add the backbone of YOLOv1, which is also a classifier."""
    net.conv(64, 7, 2)
    net.maxpool()
    net.conv(192, 3)
    net.maxpool()
    alternate(net, 128, 256, 2)
    alternate(net, 256, 512, 2)
    net.maxpool()
    alternate(net, 256, 512, 8)
    alternate(net, 512, 1024, 2)
    net.maxpool()
    alternate(net, 512, 1024, 4)


def _grid(net: CfgBuilder, boxes: int) -> None:
    net.heading(f"7 x 7 cells: 20 classes, {boxes} boxes of 4 numbers and their objectness")
    net.layer("connected", output=49 * (20 + 5 * boxes), activation="linear")
    net.layer("detection", classes=20, coords=4, num=boxes, side=7, sqrt=1)


@network("yolov2")
def yolov2() -> CfgBuilder:
    return _yolov2("yolov2: darknet19, one head over 80 COCO classes.", 608, 80, COCO)


@network("yolov2-voc")
def yolov2_voc() -> CfgBuilder:
    return _yolov2("yolov2-voc: darknet19, one head over 20 VOC classes.", 416, 20, VOC)


def _yolov2(title: str, size: int, classes: int, anchors: Sequence[float]) -> CfgBuilder:
    net = CfgBuilder(title, size=size)
    fine = backbones.darknet19(net)
    net.heading("the deep map, concatenated with the finer one after reorg")
    net.conv(1024, 3)
    deep = net.conv(1024, 3)
    net.route(fine)
    net.conv(64)
    net.layer("reorg", stride=2)
    net.route(net.last, deep)
    net.conv(1024, 3)
    _region(net, classes, anchors)
    return net


@network("yolov2-tiny")
def yolov2_tiny() -> CfgBuilder:
    net = CfgBuilder("yolov2-tiny: one head over 80 COCO classes.", size=416)
    backbones.tiny(net)
    net.conv(1024, 3)
    net.conv(512, 3)
    _region(net, 80, COCO)
    return net


@network("yolov2-tiny-voc")
def yolov2_tiny_voc() -> CfgBuilder:
    net = CfgBuilder("yolov2-tiny-voc: one head over 20 VOC classes.", size=416)
    backbones.tiny(net)
    net.conv(1024, 3)
    net.conv(1024, 3)
    _region(net, 20, VOC_TINY)
    return net


@network("yolo9000")
def yolo9000() -> CfgBuilder:
    net = CfgBuilder("yolo9000: darknet19, one head over a tree of 9418 classes.", size=544)
    backbones.darknet19(net)
    _region(net, 9418, YOLO9000, tree="9k.tree")
    return net


def _region(net: CfgBuilder, classes: int, anchors: Sequence[float], **options: str) -> None:
    boxes = len(anchors) // 2
    net.heading(f"{boxes} boxes a cell; anchors are in cells")
    net.conv(boxes * (5 + classes), activation="linear", batch_norm=False)
    net.layer("region", anchors=anchors, classes=classes, num=boxes, softmax=1, **options)
