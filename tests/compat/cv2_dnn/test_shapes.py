"""Shapes and operations of layers are those of OpenCV 4.14."""

import numpy as np
import pytest

from engine.compat import cv2_dnn
from engine.errors import InputError
from tests.compat.cv2_dnn import networks
from tests.compat.cv2_dnn.cases import small_model
from tests.compat.cv2_dnn.figures import FIGURES


@pytest.fixture(params=networks.SMALL)
def name(request):
    return request.param


@pytest.fixture
def net(name, tmp_path):
    return cv2_dnn.readNetFromDarknet(*map(str, small_model(tmp_path, name)))


@pytest.mark.parametrize("count", [1, 3])
def test_shapes_of_all_layers(name, net, count):
    shape = (count, *networks.small_blob(name).shape[1:])
    numbers, *kinds = net.getLayersShapes(shape)
    assert numbers.tolist() == list(range(len(net.getLayerNames()) + 1))
    found = [[[each.tolist() for each in layer] for layer in kind] for kind in kinds]
    assert found == FIGURES["small"][name]["shapes"][str(count)]
    assert kinds[0][0][0].dtype == np.int32


def test_operations(name, net):
    shape = networks.small_blob(name).shape
    expected = FIGURES["small"][name]["flops"]
    assert [net.getFLOPS(number, shape) for number in range(len(expected))] == expected
    assert net.getFLOPS(shape) == net.getFLOPS([shape]) == sum(expected)
    assert net.getFLOPS(netInputShape=(2, *shape[1:])) == 2 * sum(expected)
    assert net.getFLOPS(layerId=1, netInputShapes=[list(shape)]) == expected[1]


def test_another_size(tmp_path):
    net = cv2_dnn.readNetFromDarknet(*map(str, small_model(tmp_path, "detector")))
    outputs = net.getLayersShapes((1, 3, 128, 192))[2]
    assert outputs[1][0].tolist() == [1, 8, 64, 96]
    assert net.getFLOPS((1, 3, 128, 192)) == 4 * net.getFLOPS((1, 3, 64, 96))


@pytest.mark.parametrize(
    "shape", [None, (), (1, 3, 64), (1, 1, 64, 96), (1, 3, 0, 96), (1.0, 3, 64, 96), [[1, 3], [64]]]
)
def test_wrong_shapes(tmp_path, shape):
    net = cv2_dnn.readNetFromDarknet(*map(str, small_model(tmp_path, "detector")))
    for ask in (net.getFLOPS, net.getLayersShapes):
        with pytest.raises(InputError, match=r"^shape: expected \(pictures, 3, height, width\)"):
            ask(shape)


def test_an_unknown_layer(tmp_path):
    net = cv2_dnn.readNetFromDarknet(*map(str, small_model(tmp_path, "detector")))
    for number in (-1, 99):
        with pytest.raises(InputError, match="layer: expected 0 to 21"):
            net.getFLOPS(number, (1, 3, 64, 96))
