"""YOLOv7: ELAN blocks in the backbone and in the neck, boxes in new coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from tools.networks.blocks import (
    csp_spatial_pyramid,
    downsample,
    elan,
    predict,
    spatial_pyramid,
    upsample_and_concat,
)
from tools.networks.cfg_builder import CfgBuilder, network
from tools.networks.yolo_3 import ANCHORS as ANCHORS_OF_YOLOV3
from tools.networks.yolo_4 import ANCHORS


@network("yolov7")
def yolov7() -> CfgBuilder:
    net = CfgBuilder("yolov7: three heads over 80 COCO classes.", size=640, activation="swish")
    ends = _backbone(net, 32, count=4)
    net.heading("CSP around a spatial pyramid")
    coarse = csp_spatial_pyramid(net, 512, largest_first=False)
    net.heading(f"up: concatenated with layer {ends[2]}, then with layer {ends[1]}")
    upsample_and_concat(net, 256, ends[2])
    middle = _elan_concat_all(net, 256)
    upsample_and_concat(net, 128, ends[1])
    fine = _elan_concat_all(net, 128)
    net.heading(f"down: concatenated with layer {middle}, then with layer {coarse}")
    downsample(net, 128, middle)
    middle = _elan_concat_all(net, 256)
    downsample(net, 256, coarse)
    coarse = _elan_concat_all(net, 512)
    _heads(net, (fine, middle, coarse), 256, ANCHORS)
    return net


@network("yolov7x")
def yolov7x() -> CfgBuilder:
    net = CfgBuilder("yolov7x: yolov7, wider and deeper.", size=640, activation="swish")
    ends = _backbone(net, 40, count=6)
    net.heading("CSP around a spatial pyramid")
    coarse = csp_spatial_pyramid(net, 640, largest_first=False)
    net.heading(f"up: concatenated with layer {ends[2]}, then with layer {ends[1]}")
    upsample_and_concat(net, 320, ends[2])
    middle = elan(net, 256, 320, count=6)
    upsample_and_concat(net, 160, ends[1])
    fine = elan(net, 128, 160, count=6)
    net.heading(f"down: concatenated with layer {middle}, then with layer {coarse}")
    downsample(net, 160, middle)
    middle = elan(net, 256, 320, count=6)
    downsample(net, 320, coarse)
    coarse = elan(net, 512, 640, count=6)
    _heads(net, (fine, middle, coarse), 320, ANCHORS)
    return net


def _backbone(net: CfgBuilder, filters: int, *, count: int) -> list[int]:
    """Add four ELAN stages; return the end of each."""
    net.conv(filters, 3)
    net.conv(2 * filters, 3, 2)
    net.conv(2 * filters, 3)
    net.conv(4 * filters, 3, 2)
    ends = []
    for step, width in enumerate((64, 128, 256, 256)):
        out = min(8 * filters << step, 32 * filters)
        net.heading(f"ELAN of {width} channels")
        if step:
            downsample(net, 2 * filters << step)
        ends.append(elan(net, width, out, count=count))
    return ends


def _elan_concat_all(net: CfgBuilder, width: int) -> int:
    """Add the neck's ELAN: all outputs of a chain of half the width, concatenated with a bypass."""
    start = net.last
    bypass = net.conv(width)
    net.route(start)
    chain = [net.conv(width), *(net.conv(width // 2, 3) for _ in range(4))]
    net.route(*chain[::-1], bypass)
    return net.conv(width)


@network("yolov7-tiny")
def yolov7_tiny() -> CfgBuilder:
    net = CfgBuilder("yolov7-tiny: three heads over 80 COCO classes.", size=416)
    net.conv(32, 3, 2)
    net.conv(64, 3, 2)
    ends = []
    for width in (32, 64, 128, 256):
        net.heading(f"ELAN of {width} channels")
        if ends:
            net.maxpool()
        ends.append(_elan_tiny(net, width))
    net.heading("CSP around a spatial pyramid")
    bypass = net.conv(256)
    net.route(ends[3])
    net.conv(256)
    spatial_pyramid(net)
    net.conv(256)
    net.route(bypass, net.last)
    coarse = net.conv(256)
    net.heading(f"up: concatenated with layer {ends[2]}, then with layer {ends[1]}")
    upsample_and_concat(net, 128, ends[2])
    middle = _elan_tiny(net, 64)
    upsample_and_concat(net, 64, ends[1])
    fine = _elan_tiny(net, 32)
    net.heading(f"down: concatenated with layer {middle}, then with layer {coarse}")
    net.conv(128, 3, 2)
    net.route(net.last, middle)
    middle = _elan_tiny(net, 64)
    net.conv(256, 3, 2)
    net.route(net.last, coarse)
    coarse = _elan_tiny(net, 128)
    _heads(net, (fine, middle, coarse), 128, ANCHORS_OF_YOLOV3)
    return net


def _elan_tiny(net: CfgBuilder, width: int) -> int:
    start = net.last
    bypass = net.conv(width)
    net.route(start)
    chain = [net.conv(width), net.conv(width, 3), net.conv(width, 3)]
    net.route(bypass, *chain)
    return net.conv(2 * width)


def _heads(net: CfgBuilder, outputs: Sequence[int], width: int, anchors: Sequence[int]) -> None:
    for step, output in enumerate(outputs):
        net.heading(f"head at layer {output}")
        net.route(output)
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
