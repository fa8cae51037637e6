"""EfficientNet-B0 as a classifier and as a detector: inverted bottlenecks, squeeze-and-excite."""

from __future__ import annotations

from tools.networks.cfg_builder import CfgBuilder, network
from tools.networks.yolo_3 import partial_residual_heads

# inner channels, kernel size, stride, squeezed channels, output channels, whether it has a shortcut
BLOCKS = (
    (32, 3, 1, 8, 16, False),
    (96, 3, 2, 16, 24, False),
    (144, 3, 1, 8, 24, True),
    (144, 5, 2, 8, 40, False),
    (192, 5, 1, 16, 40, True),
    (192, 3, 1, 16, 80, False),
    (384, 3, 1, 24, 80, True),
    (384, 3, 1, 24, 80, True),
    (384, 5, 2, 24, 112, False),
    (576, 5, 1, 32, 112, True),
    (576, 5, 1, 32, 112, True),
    (576, 5, 2, 32, 192, False),
    (960, 5, 1, 64, 192, True),
    (960, 5, 1, 64, 192, True),
    (960, 5, 1, 64, 192, True),
    (960, 3, 1, 64, 320, False),
)


@network("efficientnet_b0")
def efficientnet_b0() -> CfgBuilder:
    net = CfgBuilder("efficientnet_b0: 1000 ImageNet classes.", size=224, activation="swish")
    _backbone(net)
    net.layer("avgpool")
    net.layer("dropout")
    net.conv(1000, activation="linear", batch_norm=False)
    net.layer("softmax")
    return net


@network("enet-coco")
def enet_coco() -> CfgBuilder:
    title = "enet-coco: EfficientNet-B0 with the heads of yolov3-tiny-prn, 80 COCO classes."
    net = CfgBuilder(title, size=416, activation="swish")
    fine = _backbone(net)
    net.activation = "leaky"
    partial_residual_heads(net, fine)
    return net


def _backbone(net: CfgBuilder) -> int:
    """Add the backbone; return the first convolution of its last block with stride 2."""
    net.conv(32, 3, 2)
    fine = 0
    for inner, size, stride, squeeze, out, has_shortcut in BLOCKS:
        net.heading(f"inverted bottleneck of {inner} channels")
        start = net.last
        first = net.conv(inner)
        if stride == 2:
            fine = first
        depthwise = net.conv(inner, size, stride, groups=inner)
        net.layer("avgpool")
        net.conv(squeeze, batch_norm=False)
        net.conv(inner, activation="logistic", batch_norm=False)
        net.scale(depthwise)
        net.conv(out, activation="linear")
        if has_shortcut:
            net.layer("dropout")
            net.add(start)
    net.conv(1280)
    return fine
