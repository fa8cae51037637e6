"""YOLOv4, its tiny networks, and two networks on CSPResNeXt-50."""

from __future__ import annotations

from collections.abc import Sequence

from tools.networks.blocks import (
    alternate,
    bottleneck,
    csp,
    csp_half,
    predict,
    spatial_pyramid,
    upsample_and_concat,
)
from tools.networks.cfg_builder import CfgBuilder, network
from tools.networks.yolo_3 import ANCHORS as ANCHORS_OF_YOLOV3
from tools.networks.yolo_3 import TINY

ANCHORS = (12, 16, 19, 36, 40, 28, 36, 75, 76, 55, 72, 146, 142, 110, 192, 243, 459, 401)


@network("yolov4")
def yolov4() -> CfgBuilder:
    title = "yolov4: CSPDarknet53, a spatial pyramid, PANet, 80 COCO classes."
    net = CfgBuilder(title, size=608, activation="mish")
    net.conv(32, 3)
    ends = []
    for filters, count in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        net.heading(f"CSP of {count} residuals, {filters} channels")
        net.conv(filters, 3, 2)
        if filters == 64:
            end = csp(net, 64, 64, count, inner=32)
        else:
            end = csp(net, filters, filters // 2, count)
        ends.append(end)
    net.activation = "leaky"
    _paths(net, third=ends[2], fourth=ends[3], anchors=ANCHORS, scales=(1.2, 1.1, 1.05))
    return net


@network("csresnext50-panet-spp")
def csresnext50_panet_spp() -> CfgBuilder:
    title = "csresnext50-panet-spp: CSPResNeXt-50, a spatial pyramid, 80 COCO classes."
    net = CfgBuilder(title, size=512)
    third, fourth = _csresnext50(net)
    _paths(net, third=third, fourth=fourth, anchors=ANCHORS_OF_YOLOV3)
    return net


@network("csresnext50-panet-spp-original-optimal")
def csresnext50_panet_spp_original_optimal() -> CfgBuilder:
    title = "csresnext50-panet-spp-original-optimal: the same layers, other anchors and scales."
    net = CfgBuilder(title, size=608)
    third, fourth = _csresnext50(net)
    _paths(net, third=third, fourth=fourth, anchors=ANCHORS, scales=(1.2, 1.1, 1.05))
    return net


def _csresnext50(net: CfgBuilder) -> tuple[int, int]:
    net.conv(64, 7, 2)
    net.maxpool()
    ends = []
    for width, count in ((128, 3), (256, 3), (512, 5), (1024, 2)):
        net.heading(f"CSP of {count} bottlenecks in 32 groups, {width} channels")
        if width > 128:
            net.conv(width, 3, 2, groups=32)
        activation = "linear" if width in (256, 512) else "leaky"
        start = net.last
        bypass = net.conv(width, activation=activation)
        net.route(start)
        net.conv(64 if width == 128 else width, activation=activation)
        for _ in range(count):
            bottleneck(net, width, width, groups=32)
        net.conv(width)
        net.route(net.last, bypass)
        ends.append(net.conv(2 * width))
    return ends[1], ends[2]


def _paths(
    net: CfgBuilder,
    *,
    third: int,
    fourth: int,
    anchors: Sequence[int],
    scales: Sequence[float] = (),
) -> None:
    """Add a spatial pyramid, the path up to finer maps, and the path down with three heads."""
    net.heading("spatial pyramid")
    alternate(net, 512, 1024, 3)
    spatial_pyramid(net)
    coarse = alternate(net, 512, 1024, 3)
    net.heading(f"up: concatenated with layer {fourth}, then with layer {third}")
    upsample_and_concat(net, 256, fourth)
    middle = alternate(net, 256, 512, 5)
    upsample_and_concat(net, 128, third)
    end = alternate(net, 128, 256, 5)
    for step, (width, lateral, objects) in enumerate(
        ((128, None, "small"), (256, middle, "medium"), (512, coarse, "large"))
    ):
        net.heading(f"{objects} objects")
        if lateral is not None:
            net.route(end)
            net.conv(width, 3, 2)
            net.route(net.last, lateral)
            end = alternate(net, width, 2 * width, 5)
        net.conv(2 * width, 3)
        mask = range(3 * step, 3 * step + 3)
        suppression = {"nms_kind": "greedynms", "beta_nms": 0.6}
        scale = {"scale_x_y": scales[step], **suppression} if scales else {}
        predict(net, 80, anchors=anchors, mask=mask, **scale)


@network("yolov4-tiny")
def yolov4_tiny() -> CfgBuilder:
    net = CfgBuilder("yolov4-tiny: three CSP blocks, two heads over 80 COCO classes.", size=416)
    _, fine = _tiny_backbone(net)
    deep = _tiny_large(net, TINY, (3, 4, 5))
    net.heading(f"small objects: the deep map, upsampled, concatenated with layer {fine}")
    _tiny_finer(net, deep, 128, fine)
    _tiny_predict(net, TINY, (1, 2, 3))
    return net


@network("yolov4-tiny-3l")
def yolov4_tiny_3l() -> CfgBuilder:
    net = CfgBuilder(
        "yolov4-tiny-3l: three CSP blocks, three heads over 80 COCO classes.", size=608
    )
    finer, fine = _tiny_backbone(net)
    deep = _tiny_large(net, ANCHORS, (6, 7, 8))
    net.heading(f"medium objects: the deep map, upsampled, concatenated with layer {fine}")
    middle = _tiny_finer(net, deep, 128, fine)
    _tiny_predict(net, ANCHORS, (3, 4, 5))
    net.heading(f"small objects: the previous map, upsampled, concatenated with layer {finer}")
    _tiny_finer(net, middle, 64, finer)
    _tiny_predict(net, ANCHORS, (0, 1, 2))
    return net


def _tiny_backbone(net: CfgBuilder) -> tuple[int, int]:
    """Add the backbone; return the branches of the second and the third block."""
    net.conv(32, 3, 2)
    net.conv(64, 3, 2)
    ends = []
    for width in (64, 128, 256):
        net.heading(f"CSP block of {width} channels on their second half")
        ends.append(csp_half(net, width))
    net.conv(512, 3)
    return ends[1], ends[2]


def _tiny_large(net: CfgBuilder, anchors: Sequence[int], mask: Sequence[int]) -> int:
    net.heading("large objects")
    deep = net.conv(256)
    net.conv(512, 3)
    _tiny_predict(net, anchors, mask)
    return deep


def _tiny_finer(net: CfgBuilder, deep: int, width: int, fine: int) -> int:
    net.route(deep)
    net.conv(width)
    net.upsample()
    net.route(net.last, fine)
    return net.conv(2 * width, 3)


def _tiny_predict(net: CfgBuilder, anchors: Sequence[int], mask: Sequence[int]) -> None:
    predict(
        *(net, 80),
        anchors=anchors,
        mask=mask,
        scale_x_y=1.05,
        nms_kind="greedynms",
        beta_nms=0.6,
    )
