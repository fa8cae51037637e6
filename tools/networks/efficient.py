"""EfficientNet-B0 as a classifier and as a detector: inverted bottlenecks that weigh channels."""

from __future__ import annotations

from tools.networks.text import Text, network
from tools.networks.yolo_3 import partial_residual_heads

# channels inside, window, stride, channels of the squeeze, channels out, whether the input is added
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
def efficientnet_b0() -> Text:
    net = Text("efficientnet_b0: 1000 ImageNet classes.", size=224, activation="swish")
    _backbone(net)
    net.layer("avgpool")
    net.layer("dropout")
    net.conv(1000, activation="linear", normalised=False)
    net.layer("softmax")
    return net


@network("enet-coco")
def enet_coco() -> Text:
    about = "enet-coco: EfficientNet-B0 below the heads of yolov3-tiny-prn, 80 COCO classes."
    net = Text(about, size=416, activation="swish")
    fine = _backbone(net)
    net.activation = "leaky"
    partial_residual_heads(net, fine)
    return net


def _backbone(net: Text) -> int:
    """The first convolution of the last block that halves is returned."""
    net.conv(32, 3, 2)
    fine = 0
    for inside, size, stride, squeeze, out, adds in BLOCKS:
        net.heading(f"inverted bottleneck of {inside} channels")
        start = net.last
        first = net.conv(inside)
        if stride == 2:
            fine = first
        seen = net.conv(inside, size, stride, groups=inside)
        net.layer("avgpool")
        net.conv(squeeze, normalised=False)
        net.conv(inside, activation="logistic", normalised=False)
        net.scale(seen)
        net.conv(out, activation="linear")
        if adds:
            net.layer("dropout")
            net.add(start)
    net.conv(1280)
    return fine
