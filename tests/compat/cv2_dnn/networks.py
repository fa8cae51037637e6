"""The networks and pictures of the comparison with OpenCV, and small networks for all layers."""

import os
from pathlib import Path

import numpy as np
from PIL import Image

SHARED = Path(__file__).resolve().parents[4] / "shared"
YOLOV3_TINY = Path(os.environ.get("ENGINE_YOLOV3_TINY", "weights"))

NETWORKS = {
    "yolov3-tiny": (YOLOV3_TINY / "yolov3-tiny.cfg", YOLOV3_TINY / "yolov3-tiny.weights"),
    **{
        name: (
            SHARED / "models" / name / f"{name}.cfg",
            SHARED / "models" / name / f"{name}.weights",
        )
        for name in ("yolo-fastest-1.1-coco", "yoloface-500k-v1")
    },
}


def pictures() -> list[Path]:
    photos = sorted((SHARED / "images" / "photos").iterdir())
    return [*photos[:2], *sorted((SHARED / "images" / "coco_val32" / "images").iterdir())[:8]]


def read(path: Path) -> np.ndarray:
    """Return a picture as imread() does: BGR."""
    return np.array(Image.open(path).convert("RGB"))[:, :, ::-1].copy()


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, channels), dtype=np.uint8)


DETECTOR = """
[net]
width=96
height=64
channels=3
[convolutional]
batch_normalize={norm}
filters=8
size=3
pad=1
stride=2
activation=leaky
[route]
layers=-1
groups=2
group_id=1
[convolutional]
batch_normalize={norm}
filters=4
size=3
pad=1
stride=1
activation=mish
[route]
layers=-1,-2
[maxpool]
size=2
stride=2
[convolutional]
batch_normalize={norm}
filters=8
size=1
stride=1
pad=1
activation=swish
[shortcut]
from=-2
activation=leaky
[dropout]
probability=0.5
[convolutional]
filters=14
size=1
stride=1
pad=1
activation=linear
[yolo]
mask=1,2
anchors=10,14,23,27,37,58
classes=2
num=3
scale_x_y=1.2
thresh=0.1
[route]
layers=-3
[upsample]
stride=2
[route]
layers=-1,2
[convolutional]
filters=7
size=1
stride=1
pad=1
activation=linear
[yolo]
mask=0
anchors=10,14,23,27,37,58
classes=2
num=3
nms_threshold=0.3
"""

REGION = """
[net]
width=64
height=64
channels=3
[convolutional]
filters=8
size=3
pad=1
stride=2
activation=relu
[maxpool]
size=2
stride=1
[reorg]
stride=2
[avgpool]
[convolutional]
filters=32
size=1
stride=1
activation=logistic
[scale_channels]
from=2
[convolutional]
filters=16
size=1
stride=1
activation=linear
[region]
anchors=1.2,1.4,3.1,2.2
classes=3
coords=4
num=2
softmax=1
thresh=0.05
"""

CLASSIFIER = """
[net]
width=32
height=32
channels=3
[convolutional]
filters=6
size=3
pad=1
stride=2
activation=leaky
[maxpool]
size=2
stride=2
[connected]
output=12
activation=leaky
[connected]
output=5
activation=linear
[softmax]
"""

SMALL = {
    "detector": DETECTOR.format(norm=0),
    "normalised detector": DETECTOR.format(norm=1),
    "region": REGION,
    "classifier": CLASSIFIER,
}
SIZES = {"region": (64, 64), "classifier": (32, 32)}


def small_blob(name: str) -> np.ndarray:
    width, height = SIZES.get(name, (96, 64))
    return np.random.default_rng(5).random((1, 3, height, width), np.float32)
