"""OpenCV's cv2.dnn reads every layout of fixed size, float16 too, and its outputs agree."""

import numpy as np
import pytest

from tests import needs
from tests.export.networks import REGION, TWO_HEADS, Network
from tests.export.runtime import run_model

needs.package("onnx")
needs.package("onnxruntime")
cv2 = needs.package("cv2")


@pytest.mark.parametrize("text", [TWO_HEADS, REGION], ids=["yolo", "region"])
@pytest.mark.parametrize("layout", ["darknet", "yolov5", "yolov8"])
@pytest.mark.parametrize("half", [False, True])
def test_each_layout(text, layout, half):
    network = Network(text)
    images = network.images()
    content = network.build(layout=layout, batch=1, half=half).content
    net = cv2.dnn.readNetFromONNX(np.frombuffer(content, np.uint8))
    net.setInput(images)
    (wanted,) = run_model(content, images)
    scale = np.abs(wanted).max()
    tolerance = 1e-2 if half else 1e-5
    np.testing.assert_allclose(net.forward(), wanted, atol=tolerance * scale)


@pytest.mark.parametrize("activation", ["tanh", "gelu", "mish"])
@pytest.mark.parametrize("opset", [13, 18])
def test_large_values_of_activations(activation, opset):
    head = "[net]\nwidth=8\nheight=8\nchannels=3\n"
    network = Network(f"{head}[convolutional]\nfilters=4\nsize=1\nactivation={activation}\n")
    images = 1000 * network.images()
    content = network.build(batch=1, opset=opset).content
    net = cv2.dnn.readNetFromONNX(np.frombuffer(content, np.uint8))
    net.setInput(images)
    (wanted,) = run_model(content, images)
    assert np.abs(images).max() > 500
    np.testing.assert_allclose(net.forward(), wanted, rtol=1e-5, atol=1e-3)
