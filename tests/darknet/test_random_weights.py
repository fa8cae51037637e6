import numpy as np
import pytest

from engine.backends import open_device
from engine.bundled import folder
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from tests.lanes import slow_except

HALVES = 65504


@pytest.mark.parametrize(
    "name", slow_except(["yolov4-tiny"], ["yolov3", "yolov4-tiny", "enet-coco", "resnet50"])
)
def test_random_weights_keep_the_scale_of_values(name):
    """Test sums of a hundred layers, too: a benchmark in float16 must not overflow."""
    network = graph.build(cfg.read(folder("cfg") / f"{name}.cfg"), size=(96, 96))
    plan = lower(network, random_weights.arrays(network)).keeping_layers()
    device = open_device("cpu")
    images = np.random.default_rng(1).random((1, *plan.source.shape.sides), np.float32)
    layers = device.compile(plan).forward(images)
    device.close()
    largest = max(float(np.abs(each).max()) for each in layers)
    assert largest < HALVES / 100
    assert 0.05 < float(np.square(layers[-2]).mean()) < 20
