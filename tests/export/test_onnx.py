"""Exported models: batch, opset and outputs; random networks agree with the CPU."""

import sys
from contextlib import closing
from random import Random

import numpy as np
import pytest

from engine.backends import open_device
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import ConfigError, InputError
from engine.export import onnx
from engine.export.activations import EXPORTERS
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS
from engine.plan.build import PlanBuilder
from engine.plan.shapes import Shape
from tests import needs
from tests.export.runtime import detected, run, run_model
from tests.property.nets import random_net

NET = """
[net]
width=32
height=32
channels=3

[convolutional]
batch_normalize=1
filters=4
size=3
pad=1
activation={activation}

[convolutional]
filters=8
activation=linear

[yolo]
mask=0
anchors=4,4
classes=3
num=1
"""


@pytest.fixture(autouse=True)
def runtime():
    needs.package("onnxruntime")
    return needs.package("onnx")


def network_of(text):
    network = graph.build(cfg.parse(text, name="net.cfg"))
    return network, lower(network, random_weights.arrays(network))


def images(plan, rows):
    return np.random.default_rng(0).random((rows, *plan.source.shape.sides), np.float32)


@pytest.mark.parametrize("opset", [13, 18, None])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_agrees_with_its_row(name, opset):
    plan = PlanBuilder(Shape(1, 1, 2001))
    out = plan.emit(ops.Activate(plan.tensor(Shape(1, 1, 2001)), plan.source, name))
    built = plan.build([out], [out])
    x = np.linspace(-25, 25, 2001, dtype=np.float32).reshape(1, 1, 1, -1)
    (found,) = run_model(onnx.serialize(built, ["layer"], opset=opset), x)
    np.testing.assert_allclose(found, ACTIVATIONS[name].numpy(x), rtol=1e-5, atol=2e-6)


def test_every_activation_has_an_onnx_form():
    assert set(EXPORTERS) == set(ACTIVATIONS)


@pytest.mark.parametrize(
    ("activation", "wanted", "expected"),
    [("leaky", None, 13), ("mish", None, 18), ("mish", 14, 14), ("leaky", 21, 21)],
)
def test_the_opset_is_the_lowest_that_has_every_node(runtime, activation, wanted, expected):
    network, plan = network_of(NET.format(activation=activation))
    model = runtime.load_from_string(onnx.serialize(plan, network.titles, opset=wanted))
    assert model.opset_import[0].version == expected
    has_mish = any(node.op_type == "Mish" for node in model.graph.node)
    assert has_mish == (activation == "mish" and expected >= 18)


def test_a_window_may_be_larger_than_the_map_it_blurs():
    text = "[net]\nwidth=1\nheight=1\nchannels=3\n"
    text += "[convolutional]\nfilters=4\nsize=1\nstride=2\nantialiasing=2\nactivation=linear\n"
    _, plan = network_of(text)
    x = images(plan, 2)
    (found,) = run_model(onnx.serialize(plan, ["layer"]), x)
    with closing(open_device("cpu:1")) as cpu, closing(cpu.compile(plan, batch=2)) as program:
        np.testing.assert_allclose(found, program.forward(x)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [12, 999])
def test_other_opsets_are_refused(opset):
    network, plan = network_of(NET.format(activation="leaky"))
    with pytest.raises(InputError, match=f"opset: expected 13 to .*, got {opset}"):
        onnx.serialize(plan, network.titles, opset=opset)


def test_batch_is_dynamic_unless_given(cpu):
    network, plan = network_of(NET.format(activation="mish"))
    program = cpu.compile(plan, batch=5)
    for rows in (1, 5):
        given = images(plan, rows)
        for found, expected in zip(run(plan, network, given), program.forward(given), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(Exception, match="Got: 1 Expected: 2"):
        run(plan, network, images(plan, 1), batch=2)


def test_decoding_keeps_every_row(cpu):
    network, plan = network_of(NET.format(activation="leaky"))
    given = images(plan, 2)
    (rows,) = run(plan, network, given, layout="darknet")
    assert rows.shape == (2, 32 * 32, 8)
    expected = cpu.compile(plan, batch=2).detect(given, threshold=0.5)
    for found, wanted in zip(detected(rows, plan, 0.5), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_decoding_needs_a_detection_layer():
    network, plan = network_of(NET[: NET.index("[yolo]")].format(activation="leaky"))
    with pytest.raises(InputError, match="expected a network with a detection layer"):
        onnx.serialize(plan, network.titles, layout="darknet")


@pytest.mark.parametrize("seed", range(25))
def test_random_networks_agree_with_the_cpu_or_are_refused(cpu, seed):
    net = random_net(Random(seed))
    network = graph.build(cfg.parse(net.text, name="net.cfg"), time_steps=net.time_steps)
    plan = lower(network, random_weights.arrays(network)).keeping_layers()
    given = images(plan, 2 * plan.steps)
    if any(tensor.is_state for tensor in plan.tensors):
        with pytest.raises(ConfigError, match=r"net\.cfg: layer "):
            run(plan, network, given)
        return
    outputs = run(plan, network, given)
    expected = cpu.compile(plan, batch=2).forward(given)
    for found, wanted in zip(outputs, expected, strict=True):
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * scale)


def test_missing_package_is_one_line_with_an_install_hint(monkeypatch):
    network, plan = network_of(NET.format(activation="leaky"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"Run: pip install '.+\[onnx\]'"):
        onnx.serialize(plan, network.titles)
