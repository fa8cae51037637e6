"""float16 models: what is float16, how close the outputs are, and what is refused."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from engine import bundled
from engine.errors import ConfigError
from engine.export.suppression import Nms
from engine.plan.activations import ACTIVATIONS
from engine.vision.boxes import Suppression
from tests import needs
from tests.export.networks import GRID, REGION, TWO_HEADS, Network
from tests.export.runtime import run_model
from tests.property.nets import random_net

onnx = needs.package("onnx")
needs.package("onnxruntime")

TOLERANCE = 0.01  # of the largest value of an output; 11 bits are 0.0005
INPUT = "[net]\nwidth=16\nheight=16\nchannels=3\n"
CONV = "[convolutional]\nfilters=8\nsize=3\npad=1\nactivation=leaky\n"


def compare(network, images, **options):
    found = run_model(network.build(half=True, **options).content, images)
    for ours, theirs in zip(found, network.outputs(images), strict=True):
        assert ours.dtype == np.float32
        scale = float(np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE * scale)


@pytest.mark.parametrize("text", [TWO_HEADS, REGION, GRID], ids=["yolo", "region", "detection"])
def test_outputs_are_close(text):
    network = Network(text)
    compare(network, network.images(2))


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"linear"}))
def test_every_activation_is_close(name):
    network = Network(INPUT + CONV.replace("leaky", name) + CONV)
    compare(network, 20 * network.images())


def test_weights_and_activations_are_float16_and_both_ends_float32():
    network = Network(TWO_HEADS)
    model = onnx.load_from_string(network.build(half=True, layout="yolov5").content)
    kinds = Counter(each.data_type for each in model.graph.initializer if " " in each.name)
    assert set(kinds) == {onnx.TensorProto.FLOAT16}
    ends = (*model.graph.input, *model.graph.output)
    assert {each.type.tensor_type.elem_type for each in ends} == {onnx.TensorProto.FLOAT}
    typed = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    found = {each.name: each.type.tensor_type.elem_type for each in typed.graph.value_info}
    for node in model.graph.node:
        if node.op_type in ("Conv", "LeakyRelu", "MaxPool", "Resize"):
            assert found[node.output[0]] == onnx.TensorProto.FLOAT16
        elif node.op_type in ("Sigmoid", "Exp"):
            assert found[node.output[0]] == onnx.TensorProto.FLOAT


def test_a_file_is_half_as_large():
    network = Network(files=bundled.default_model()[:2])
    sizes = [len(network.build(half=half).content) for half in (False, True)]
    assert 0.49 < sizes[1] / sizes[0] < 0.53


@pytest.mark.parametrize("layout", ["darknet", "yolov8"])
def test_the_bundled_model_finds_the_same_codes(layout):
    model = bundled.default_model()
    network = Network(files=model[:2])
    images = network.input_of(model.cfg.parents[1] / "docs/parcel.jpg")
    nms = Nms(0.5, Suppression(0.45))
    (wanted,) = network.boxes(images, nms.threshold, nms.suppression)
    found = run_model(network.build(half=True, layout=layout, nms=nms).content, images)
    scores = found[1][0] if layout == "darknet" else found[0][0, :, 4]
    assert np.count_nonzero(scores) == len(wanted) >= 5
    np.testing.assert_allclose(scores[: len(wanted)], wanted.scores, atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(10))
def test_random_networks_are_close_or_refused(seed):
    net = random_net(Random(seed))
    if net.time_steps > 1:
        return
    network = Network(net.text)
    if network.built_or_refused(half=True):
        compare(network, network.images())


def test_weights_beyond_float16_are_refused_by_their_layer():
    network = Network(INPUT + CONV + CONV)
    largest = network.arrays[1]["weight"]
    largest[0, 0, 0, 0] = 70_000
    changed = Network(INPUT + CONV + CONV, arrays=network.arrays)
    changed.build()
    with pytest.raises(ConfigError, match=r"layer 1 \[convolutional\]: ONNX: half: .* got 70000\."):
        changed.build(half=True)


def test_signs_are_refused_by_their_layer():
    network = Network(INPUT + CONV + CONV + "xnor=1\n")
    network.build()
    with pytest.raises(ConfigError, match=r"layer 1 \[convolutional\]: ONNX: half: .* got signs"):
        network.build(half=True)


def test_padding_with_the_lowest_number_stays_in_range():
    text = INPUT + CONV + "[maxpool]\nsize=2\nstride=2\npadding=4\n"
    network = Network(text)
    (found,) = run_model(network.build(half=True).content, network.images())
    (wanted,) = network.outputs(network.images())
    assert np.isfinite(found).all()
    inside = np.abs(wanted) < 1e30
    np.testing.assert_allclose(found[inside], wanted[inside], atol=0.01)
    assert (found[~inside] == -65504).all()
