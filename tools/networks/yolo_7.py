"""YOLOv7: ELAN blocks in the backbone and in the neck, boxes in new coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from tools.networks.blocks import (
    cross_stage_pyramid,
    elan,
    enlarge_beside,
    predict,
    shrink,
    spatial_pyramid,
)
from tools.networks.text import Text, network
from tools.networks.yolo_3 import ANCHORS as ANCHORS_OF_YOLOV3
from tools.networks.yolo_4 import ANCHORS


@network("yolov7")
def yolov7() -> Text:
    net = Text("yolov7: three heads over 80 COCO classes.", size=640, activation="swish")
    ends = _backbone(net, 32, count=4)
    net.heading("CSP around a spatial pyramid")
    coarse = cross_stage_pyramid(net, 512, largest_first=False)
    net.heading(f"up: beside layer {ends[2]}, then beside layer {ends[1]}")
    enlarge_beside(net, 256, ends[2])
    middle = _elan_keeping_all(net, 256)
    enlarge_beside(net, 128, ends[1])
    fine = _elan_keeping_all(net, 128)
    net.heading(f"down: beside layer {middle}, then beside layer {coarse}")
    shrink(net, 128, middle)
    middle = _elan_keeping_all(net, 256)
    shrink(net, 256, coarse)
    coarse = _elan_keeping_all(net, 512)
    _heads(net, (fine, middle, coarse), 256, ANCHORS)
    return net


@network("yolov7x")
def yolov7x() -> Text:
    net = Text("yolov7x: yolov7, wider and deeper.", size=640, activation="swish")
    ends = _backbone(net, 40, count=6)
    net.heading("CSP around a spatial pyramid")
    coarse = cross_stage_pyramid(net, 640, largest_first=False)
    net.heading(f"up: beside layer {ends[2]}, then beside layer {ends[1]}")
    enlarge_beside(net, 320, ends[2])
    middle = elan(net, 256, 320, count=6)
    enlarge_beside(net, 160, ends[1])
    fine = elan(net, 128, 160, count=6)
    net.heading(f"down: beside layer {middle}, then beside layer {coarse}")
    shrink(net, 160, middle)
    middle = elan(net, 256, 320, count=6)
    shrink(net, 320, coarse)
    coarse = elan(net, 512, 640, count=6)
    _heads(net, (fine, middle, coarse), 320, ANCHORS)
    return net


def _backbone(net: Text, filters: int, *, count: int) -> list[int]:
    """Four ELAN stages; the end of each."""
    net.conv(filters, 3)
    net.conv(2 * filters, 3, 2)
    net.conv(2 * filters, 3)
    net.conv(4 * filters, 3, 2)
    ends = []
    for step, width in enumerate((64, 128, 256, 256)):
        out = min(8 * filters << step, 32 * filters)
        net.heading(f"ELAN of {width} channels")
        if step:
            shrink(net, 2 * filters << step)
        ends.append(elan(net, width, out, count=count))
    return ends


def _elan_keeping_all(net: Text, width: int) -> int:
    """The neck's ELAN: a chain at half the width, each of whose links is kept."""
    start = net.last
    beside = net.conv(width)
    net.route(start)
    chain = [net.conv(width), *(net.conv(width // 2, 3) for _ in range(4))]
    net.route(*chain[::-1], beside)
    return net.conv(width)


@network("yolov7-tiny")
def yolov7_tiny() -> Text:
    net = Text("yolov7-tiny: three heads over 80 COCO classes.", size=416)
    net.conv(32, 3, 2)
    net.conv(64, 3, 2)
    ends = []
    for width in (32, 64, 128, 256):
        net.heading(f"ELAN of {width} channels")
        if ends:
            net.maxpool()
        ends.append(_elan_tiny(net, width))
    net.heading("CSP around a spatial pyramid")
    beside = net.conv(256)
    net.route(ends[3])
    net.conv(256)
    spatial_pyramid(net)
    net.conv(256)
    net.route(beside, net.last)
    coarse = net.conv(256)
    net.heading(f"up: beside layer {ends[2]}, then beside layer {ends[1]}")
    enlarge_beside(net, 128, ends[2])
    middle = _elan_tiny(net, 64)
    enlarge_beside(net, 64, ends[1])
    fine = _elan_tiny(net, 32)
    net.heading(f"down: beside layer {middle}, then beside layer {coarse}")
    net.conv(128, 3, 2)
    net.route(net.last, middle)
    middle = _elan_tiny(net, 64)
    net.conv(256, 3, 2)
    net.route(net.last, coarse)
    coarse = _elan_tiny(net, 128)
    _heads(net, (fine, middle, coarse), 128, ANCHORS_OF_YOLOV3)
    return net


def _elan_tiny(net: Text, width: int) -> int:
    start = net.last
    beside = net.conv(width)
    net.route(start)
    chain = [net.conv(width), net.conv(width, 3), net.conv(width, 3)]
    net.route(beside, *chain)
    return net.conv(2 * width)


def _heads(net: Text, stops: Sequence[int], width: int, anchors: Sequence[int]) -> None:
    for step, stop in enumerate(stops):
        net.heading(f"head at layer {stop}")
        net.route(stop)
        net.conv(width << step, 3)
        predict(
            *(net, 80),
            anchors=anchors,
            mask=range(3 * step, 3 * step + 3),
            activation="logistic",
            scale_x_y=2.0,
            new_coords=1,
            nms_kind="diounms",
            beta_nms=0.6,
        )
