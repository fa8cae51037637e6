"""OrtProgram gives the outputs and boxes of the NumPy definition, or the network is refused."""

import json
import os
import tempfile
from contextlib import closing

import numpy as np
import pytest

from engine.backends import open_device
from engine.backends.base import TimedProgram
from engine.darknet import cfg, graph, random_weights, weights
from engine.darknet.lower import lower
from engine.errors import ConfigError, EngineError, InputError
from engine.passes import optimise
from tests import needs
from tests.backends.test_cpu_device import images, small_plan
from tests.export.test_golden_onnx import CASES, judge  # noqa: F401

MODELS = sorted((needs.SHARED / "models").glob("*/*.cfg"))
FAST_MODELS = ("yolo-fastest-1.1-coco", "yoloface-50k")


@pytest.fixture(autouse=True)
def runtime():
    needs.package("onnx")
    return needs.package("onnxruntime")


def programs(plan, batch):
    """Return the plan compiled for both devices."""
    for name in ("ort:1", "cpu"):
        device = open_device(name)
        yield device.compile(optimise(plan, device.passes), batch=batch)


def assert_same(plan, x, batch, atol, thresholds=(0.1, 0.5)):
    kept = plan.keeping_layers()
    ours, theirs = programs(kept, batch)
    with closing(ours), closing(theirs):
        for got, expected in zip(ours.forward(x), theirs.forward(x), strict=True):
            np.testing.assert_allclose(got, expected, atol=atol, rtol=1e-4)
    if plan.heads:
        ours, theirs = programs(plan, batch)
        with closing(ours), closing(theirs):
            for threshold in thresholds:
                for got, expected in zip(
                    ours.detect(x, threshold=threshold),
                    theirs.detect(x, threshold=threshold),
                    strict=True,
                ):
                    assert got.shape == expected.shape
                    np.testing.assert_allclose(got, expected, atol=1e-3, rtol=1e-3)


@needs.shared("golden")
@pytest.mark.parametrize("folder", CASES, ids=[path.name for path in CASES])
def test_golden_cases(judge, folder):  # noqa: F811
    case = json.loads((folder / "case.json").read_text())
    network = graph.build(cfg.read(folder / "net.cfg"), time_steps=case["time_steps"])
    with tempfile.TemporaryDirectory() as temporary:
        path = judge.weights_for(str(folder), case, temporary)
        plan = lower(network, weights.load(path, network))
    x = judge.inputs_for(case)[0].reshape(-1, *network.net.shape.sides)
    batch = len(x) // case["time_steps"]
    if any(tensor.is_state for tensor in plan.tensors):
        with pytest.raises(ConfigError, match=r"layer \d+ \[\w+\]: ONNX: "):
            open_device("ort:1").compile(plan, batch=batch)
        return
    assert_same(plan, x, batch, 1e-4)


@needs.shared("models")
@pytest.mark.parametrize(
    "path",
    [
        path if path.stem in FAST_MODELS else pytest.param(path, marks=pytest.mark.slow)
        for path in MODELS
    ],
    ids=lambda path: path.stem,
)
def test_trained_networks(path):
    network = graph.build(cfg.read(path))
    plan = lower(network, weights.load(path.with_suffix(".weights"), network))
    x = np.random.default_rng(0).random((2, *network.net.shape.sides), np.float32)
    assert_same(plan, x, 2, 1e-3)


def test_fewer_rows_than_the_batch():
    plan = small_plan()
    ours, theirs = programs(plan, 3)
    with closing(ours), closing(theirs):
        for rows in (1, 3, 2):
            for got, expected in zip(
                ours.forward(images(rows)), theirs.forward(images(rows)), strict=True
            ):
                np.testing.assert_allclose(got, expected, atol=1e-5)


def test_wrong_inputs():
    program = open_device("ort:1").compile(small_plan(), batch=2)
    with pytest.raises(InputError, match="1 to 2 rows, got 3"):
        program.forward(images(3))
    with pytest.raises(InputError, match=r"images: expected \(rows, "):
        program.forward(images(1)[0])
    with pytest.raises(InputError, match="detection layer"):
        program.detect(images(1), threshold=0.5)
    program.reset()
    assert program.memory.weights > 0


def test_stages_are_timed_and_layers_refused(tiny_detector):
    network = graph.build(cfg.read(tiny_detector.cfg))
    plan = lower(network, weights.load(tiny_detector.weights, network))
    x = np.random.default_rng(0).random((1, *network.net.shape.sides), np.float32)
    for program in programs(plan, 1):
        assert isinstance(program, TimedProgram)
        times, outputs = program.stages(x)
        assert times.forward > 0
        np.testing.assert_array_equal(outputs[0], program.forward(x)[0])
        times, (rows,) = program.stages(x, threshold=0.1)
        np.testing.assert_array_equal(rows, program.detect(x, threshold=0.1)[0])
    device = open_device("ort:1")
    with pytest.raises(InputError, match="ort: layers: cannot be timed"):
        device.compile(plan).profile(x)


def test_a_failure_in_the_runtime_is_one_line(monkeypatch):
    program = open_device("ort:1").compile(small_plan())

    class Broken:
        def run(self, *_):
            raise RuntimeError("out of\n luck")

    monkeypatch.setattr(program, "_session", Broken())
    with pytest.raises(EngineError, match="ort: the network failed: out of luck"):
        program.forward(images(1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_child_is_told_to_load_again(monkeypatch):
    program = open_device("ort:1").compile(small_plan())
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(EngineError, match="Load it in each process"):
        program.forward(images(1))


def test_random_weights_are_enough():
    """A network without a detection layer."""
    network = graph.build(cfg.parse("[net]\nwidth=8\nheight=8\nchannels=3\n[avgpool]\n[softmax]\n"))
    plan = lower(network, random_weights.arrays(network))
    assert_same(plan, np.random.default_rng(0).random((1, 3, 8, 8), np.float32), 1, 1e-6)
