"""Scaled YOLOv4: CSP in the backbone and in the neck, boxes in new coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from tools.networks.blocks import (
    csp,
    csp_plain,
    csp_spatial_pyramid,
    predict,
    residual,
    upsample_and_concat,
)
from tools.networks.cfg_builder import CfgBuilder, network
from tools.networks.yolo_4 import ANCHORS

P5 = (13, 17, 31, 25, 24, 51, 61, 45, 48, 102, 119, 96)
P5 += (97, 189, 217, 184, 171, 384, 324, 451, 616, 618, 800, 800)
P6 = (13, 17, 31, 25, 24, 51, 61, 45, 61, 45, 48, 102, 119, 96, 97, 189)
P6 += (97, 189, 217, 184, 171, 384, 324, 451, 324, 451, 545, 357, 616, 618, 1024, 1024)

Stages = Sequence[tuple[int, int]]  # channels and number of residuals
CSP: Stages = ((128, 2), (256, 8), (512, 8), (1024, 4))
CSP_X: Stages = ((160, 3), (320, 10), (640, 10), (1280, 5))
CSP_P5: Stages = ((64, 1), (128, 3), (256, 15), (512, 15), (1024, 7))


@network("yolov4-csp")
def yolov4_csp() -> CfgBuilder:
    net = _start("yolov4-csp: CSP in backbone and neck, 80 COCO classes.", 512, "mish")
    ends = _backbone(net, CSP, first=64)
    _neck_with_heads_between(net, ends, width=128, count=2)
    return net


@network("yolov4x-mish")
def yolov4x_mish() -> CfgBuilder:
    net = _start("yolov4x-mish: yolov4-csp, wider and deeper.", 640, "mish")
    ends = _backbone(net, CSP_X, first=80)
    _neck_with_heads_between(net, ends, width=160, count=3, pairs=2)
    return net


@network("yolov4-csp-swish")
def yolov4_csp_swish() -> CfgBuilder:
    net = _start("yolov4-csp-swish: yolov4-csp with another activation.", 640, "swish")
    ends = _backbone(net, CSP, first=64)
    outputs = _neck(net, ends, widths=(128, 256, 512), count=2)
    _heads(net, outputs, (256, 512, 1024), ANCHORS)
    return net


@network("yolov4-csp-x-swish")
def yolov4_csp_x_swish() -> CfgBuilder:
    net = _start("yolov4-csp-x-swish: yolov4x-mish with another activation.", 640, "swish")
    ends = _backbone(net, CSP_X, first=80)
    outputs = _neck(net, ends, widths=(160, 320, 640), count=3, pairs=2)
    _heads(net, outputs, (320, 640, 1280), ANCHORS)
    return net


@network("yolov4-p5")
def yolov4_p5() -> CfgBuilder:
    net = _start("yolov4-p5: three heads of four anchors, 80 COCO classes.", 896, "mish")
    ends = _backbone(net, CSP_P5)
    outputs = _neck(net, ends, widths=(128, 256, 512), count=3)
    _heads(net, outputs, (256, 512, 1024), P5)
    return net


@network("yolov4-p6")
def yolov4_p6() -> CfgBuilder:
    net = _start("yolov4-p6: four heads of four anchors, 80 COCO classes.", 1280, "mish")
    ends = _backbone(net, (*CSP_P5, (1024, 7)))
    outputs = _neck(net, ends, widths=(128, 256, 512, 512), count=3)
    _heads(net, outputs, (256, 512, 1024, 1024), P6)
    return net


def _start(title: str, size: int, activation: str) -> CfgBuilder:
    return CfgBuilder(title, size=size, activation=activation, letter_box=1)


def _backbone(net: CfgBuilder, stages: Stages, *, first: int = 0) -> list[int]:
    """Add the backbone; return the ends of the stages from the third on.

    `first` is the number of channels of an optional first stage of one plain residual.
    """
    net.conv(32, 3)
    ends = []
    if first:
        net.heading(f"residual, {first} channels")
        net.conv(first, 3, 2)
        ends.append(residual(net, first // 2, first))
    for filters, count in stages:
        net.heading(f"CSP of {count} residuals, {filters} channels")
        net.conv(filters, 3, 2)
        ends.append(csp(net, filters, filters // 2, count))
    return ends[2:]


def _up(
    net: CfgBuilder, ends: Sequence[int], *, widths: Sequence[int], count: int, pairs: int
) -> list[int]:
    """Add a spatial pyramid and the path up to finer maps; return its outputs, finest first."""
    net.heading("CSP around a spatial pyramid")
    outputs = [csp_spatial_pyramid(net, widths[-1], pairs=pairs)]
    for width, end in zip(widths[-2::-1], ends[-2::-1], strict=True):
        net.heading(f"up: concatenated with layer {end}")
        upsample_and_concat(net, width, end)
        outputs.insert(0, csp_plain(net, width, count))
    return outputs


def _neck(
    net: CfgBuilder, ends: Sequence[int], *, widths: Sequence[int], count: int, pairs: int = 1
) -> list[int]:
    """Add the path up and the path down; return the outputs of the latter."""
    laterals = _up(net, ends, widths=widths, count=count, pairs=pairs)
    outputs = laterals[:1]
    for width, lateral in zip(widths[1:], laterals[1:], strict=True):
        net.heading(f"down: concatenated with layer {lateral}")
        _down(net, width, lateral, count)
        outputs.append(net.last)
    return outputs


def _neck_with_heads_between(
    net: CfgBuilder, ends: Sequence[int], *, width: int, count: int, pairs: int = 1
) -> None:
    widths = (width, 2 * width, 4 * width)
    laterals = _up(net, ends, widths=widths, count=count, pairs=pairs)
    end = laterals[0]
    for step, lateral in enumerate(laterals):
        net.heading(f"head of {widths[step]} channels")
        if step:
            net.route(end)
            end = _down(net, widths[step], lateral, count)
        _head(net, 2 * widths[step], ANCHORS, range(3 * step, 3 * step + 3))


def _down(net: CfgBuilder, width: int, lateral: int, count: int) -> int:
    net.conv(width, 3, 2)
    net.route(net.last, lateral)
    return csp_plain(net, width, count)


def _heads(
    net: CfgBuilder, outputs: Sequence[int], widths: Sequence[int], anchors: Sequence[int]
) -> None:
    each = len(anchors) // 2 // len(outputs)
    for step, (output, width) in enumerate(zip(outputs, widths, strict=True)):
        net.heading(f"head at layer {output}")
        net.route(output)
        _head(net, width, anchors, range(each * step, each * step + each))


def _head(net: CfgBuilder, width: int, anchors: Sequence[int], mask: Sequence[int]) -> None:
    net.conv(width, 3)
    predict(
        *(net, 80),
        anchors=anchors,
        mask=mask,
        activation="logistic",
        scale_x_y=2.0,
        new_coords=1,
        nms_kind="diounms",
        beta_nms=0.6,
    )
