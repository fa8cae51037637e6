"""OpenCV's layers of large networks: how many, and which are outputs. test_net.py has all names."""

import pytest

from engine.bundled import folder
from engine.compat.cv2_dnn.layers import layers_of, unconnected
from engine.darknet import cfg, graph

# recorded with OpenCV 4.14
LARGE = {
    "yolov4-tiny": (["yolo_30", "yolo_37"], "slice_3"),
    "yolov2-tiny": (["detection_out"], "permute_15"),
    "yolov3": (["yolo_82", "yolo_94", "yolo_106"], "shortcut_4"),
    "yolov4": (["yolo_139", "yolo_150", "yolo_161"], "mish_1"),
    "yolov7-tiny": (["yolo_90", "yolo_94", "yolo_98"], "leaky_1"),
    "enet-coco": (["yolo_136", "yolo_145"], "scale_channels_129"),
}


@pytest.mark.parametrize("name", LARGE)
def test_outputs(name):
    network = graph.build(cfg.read(folder("cfg") / f"{name}.cfg"))
    layers = layers_of(network)
    outputs, other = LARGE[name]
    assert [layers[each].name for each in unconnected(network, layers)] == outputs
    names = [each.name for each in layers]
    assert other in names
    assert len(set(names)) == len(names)


def test_sections_that_opencv_does_not_know():
    network = graph.build(cfg.read(folder("cfg") / "Gaussian_yolov3_BDD.cfg"))
    layers = layers_of(network)
    assert [layers[each].name for each in unconnected(network, layers)] == [
        "Gaussian_yolo_82",
        "Gaussian_yolo_94",
        "Gaussian_yolo_106",
    ]
