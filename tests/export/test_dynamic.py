"""Models of any height and width: the outputs of the engine at each size, or a refused layer."""

from contextlib import suppress
from random import Random

import numpy as np
import pytest

from engine import bundled
from engine.darknet import cfg, graph
from engine.errors import ConfigError, InputError
from engine.export.suppression import Nms
from engine.vision.boxes import Suppression
from tests import needs
from tests.export.networks import REGION, TWO_HEADS, Network
from tests.export.runtime import run_model
from tests.property.nets import random_net

needs.package("onnx")
needs.package("onnxruntime")

INPUT = "[net]\nwidth=24\nheight=16\nchannels=3\n"
CONV = "[convolutional]\nfilters=8\nsize=3\npad=1\nactivation=leaky\n"
# Layers whose result depends on the size in other ways than a convolution's.
RESIZABLE = {
    "global average": CONV + "[avgpool]\n",
    "local average": CONV + "[local_avgpool]\nsize=3\nstride=2\n",
    "squeeze and excite": CONV
    + "[avgpool]\n[convolutional]\nfilters=8\nactivation=logistic\n[scale_channels]\nfrom=-3\n",
    "largest of channels": CONV + "[maxpool]\nmaxpool_depth=1\nout_channels=3\n",
    "reorg": CONV + "[reorg]\nstride=2\n",
    "reorg back": CONV + "[reorg]\nstride=2\nreverse=1\n",
    "reorg3d": CONV + "[reorg3d]\nstride=2\n",
    "upsample": CONV + "[upsample]\nstride=2\nscale=0.5\n",
    "sum of blocks": CONV + "[upsample]\nstride=-2\n",
    "deconvolution": CONV + "[deconvolutional]\nfilters=4\nsize=3\nstride=2\nactivation=relu\n",
    "odd pool": CONV + "[maxpool]\nsize=5\nstride=1\n[maxpool]\nsize=3\nstride=2\n",
    "softmax of a vector": CONV + "[avgpool]\n[softmax]\n",
    "sum with fewer channels": CONV
    + CONV.replace("filters=8", "filters=3")
    + "[shortcut]\nfrom=-2\nactivation=linear\n",
    "sum with more channels": CONV.replace("filters=8", "filters=3")
    + CONV
    + "[shortcut]\nfrom=-2\nactivation=linear\n",
    "sum with a larger map": CONV
    + "[maxpool]\nsize=2\nstride=2\n[shortcut]\nfrom=-2\nactivation=leaky\n",
    "sum with a smaller map": CONV
    + "[maxpool]\nsize=2\nstride=2\n[route]\nlayers=-2\n[shortcut]\nfrom=-2\nactivation=leaky\n",
    "dilation": CONV + CONV.replace("pad=1", "pad=1\ndilation=2"),
}
FIXED = {
    "connected": ("[connected]\noutput=3\n", r"layer 1 \[connected\]", "weights for each value"),
    "local": ("[local]\nfilters=2\nsize=3\n", r"layer 1 \[local\]", "weights for each cell"),
    "crop": (
        "[crop]\ncrop_width=8\ncrop_height=8\n",
        r"layer 1 \[crop\]",
        "a crop of a fixed size",
    ),
    "softmax": ("[softmax]\n", r"layer 1 \[softmax\]", "a softmax over a map"),
    "vector": (
        "[maxpool]\nstride=2\n[route]\nlayers=-1,-2\n",
        r"layer 2 \[route\]",
        "becomes a vector",
    ),
    "stride": ("[convolutional]\nsize=1\nstride=99\n", r"layer 1 ", "a stride as long as its map"),
    "window": (
        "[maxpool]\nsize=16\nstride=1\npadding=0\n",
        r"layer 1 \[maxpool\]",
        "a window as large as its map",
    ),
}


def at(network, text, width, height):
    """Return the same network, with the same weights, at another size."""
    return Network(text, size=(width, height), arrays=network.arrays)


def compare(model, network, images, tolerance=1e-4):
    found = run_model(model.content, images)
    for ours, theirs in zip(found, network.outputs(images), strict=True):
        assert ours.shape == theirs.shape
        scale = max(1.0, float(np.abs(theirs).max()))
        np.testing.assert_allclose(ours, theirs, rtol=10 * tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", RESIZABLE)
def test_each_layer_takes_any_size(name):
    text = INPUT + RESIZABLE[name]
    network = Network(text)
    model = network.build(dynamic=True)
    assert model.inputs[0].sides == ("batch", 3, "height", "width")
    for width, height in ((24, 16), (40, 8), (8, 36)):
        other = at(network, text, width, height)
        compare(model, other, other.images(2))


@pytest.mark.parametrize("name", FIXED)
def test_a_layer_of_fixed_size_is_refused_by_its_name(name):
    layer, title, reason = FIXED[name]
    network = Network(INPUT + CONV + layer)
    network.build()
    with pytest.raises(ConfigError, match=rf"net\.cfg: {title}.*: ONNX: dynamic: .*{reason}"):
        network.build(dynamic=True)


MEETING = CONV.replace("pad=1", "pad=1\nstride=2")
MEETING = (
    f"{CONV}{MEETING}{MEETING}[upsample]\nstride=2\n"
    "[shortcut]\nfrom={source}\nactivation=linear\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("source", [-3, -4])
def test_sums_of_maps_whose_sizes_differ_only_in_a_run(source, half):
    """Strides round up: a map that is halved and doubled again may be larger than before."""
    text = INPUT.replace("24", "8").replace("16", "8") + MEETING.format(source=source)
    network = Network(text)
    model = network.build(dynamic=True, half=half)
    tolerance = 1e-2 if half else 1e-4
    for width, height in ((1, 1), (2, 2), (4, 4), (8, 8), (3, 5), (9, 6), (30, 17)):
        other = at(network, text, width, height)
        compare(model, other, other.images(2), tolerance)


def test_a_product_of_maps_whose_sizes_differ_in_a_run_fails():
    text = INPUT + MEETING.replace("[shortcut]", "[sam]").format(source=-3)
    network = Network(text)
    model = network.build(dynamic=True)
    compare(model, network, network.images(2))
    with pytest.raises(InputError, match="expected a multiple of 4"):
        at(network, text, 1, 1)
    with pytest.raises(Exception, match="Reshape"):
        run_model(model.content, np.zeros((1, 3, 1, 1), np.float32))


def test_maps_of_one_size_are_added_by_one_node():
    model = Network(INPUT + RESIZABLE["sum with fewer channels"]).build(dynamic=True)
    assert b"ReduceProd" not in model.content


def test_a_local_average_does_not_grow_with_the_map():
    network = Network(INPUT.replace("24", "16") + "[local_avgpool]\nsize=16\nstride=1\npadding=0\n")
    with pytest.raises(ConfigError, match=r"layer 0 \[local_avgpool\]: ONNX: dynamic: "):
        network.build(dynamic=True)


@pytest.mark.slow
@pytest.mark.parametrize("text", [TWO_HEADS, REGION], ids=["yolo", "region"])
@pytest.mark.parametrize("kind", ["default", "greedynms"])
def test_boxes_at_other_sizes(text, kind):
    network = Network(text)
    nms = Nms(0.3, Suppression(0.45, kind), 500)
    model = network.build(dynamic=True, layout="darknet", nms=nms)
    for width, height in ((64, 32), (32, 96)):
        other = at(network, text, width, height)
        images = other.images(2)
        *_, scores, _, count = run_model(model.content, images)
        wanted = other.boxes(images, nms.threshold, nms.suppression)
        assert count.tolist() == list(map(len, wanted))
        for found, boxes in zip(scores, wanted, strict=True):
            np.testing.assert_allclose(found[: len(boxes)], boxes.scores, atol=1e-5)


def test_pixels_are_those_of_the_input_that_is_given():
    network = Network(TWO_HEADS)
    model = network.build(dynamic=True, layout="yolov5")
    other = at(network, TWO_HEADS, 128, 96)
    images = other.images()
    (fixed,) = run_model(other.build(layout="yolov5").content, images)
    (found,) = run_model(model.content, images)
    np.testing.assert_allclose(found, fixed, rtol=1e-4, atol=1e-4)
    assert model.outputs[0].sides == ("batch", "rows", 8)


def test_the_bundled_model_takes_a_wide_picture():
    files = bundled.default_model()[:2]
    model = Network(files=files).build(dynamic=True, layout="darknet", batch=1)
    other = Network(files=files, size=(448, 224))
    images = other.images()
    (fixed,) = run_model(other.build(layout="darknet").content, images)
    np.testing.assert_allclose(run_model(model.content, images)[0], fixed, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_random_networks_agree_at_each_size_or_are_refused(seed):
    net = random_net(Random(seed))
    sections = cfg.parse(net.text, name="net.cfg")
    if net.time_steps > 1:
        return
    network = Network(net.text)
    model = network.built_or_refused(dynamic=True)
    if model is None:
        return
    own = network.graph.net
    for width, height in ((own.width, own.height), (48, 32), (96, 64)):
        with suppress(ConfigError, InputError):  # not every size can be built
            graph.build(sections, size=(width, height))
            other = at(network, net.text, width, height)
            compare(model, other, other.images())
