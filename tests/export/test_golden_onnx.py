"""Darknet's small golden cases through ONNX Runtime: every layer and the decoded boxes."""

import importlib.util
import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from engine.backends import open_device
from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.errors import ConfigError
from engine.passes import optimise
from tests import needs
from tests.export.runtime import detected, run

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
CASES = sorted(path.parent for path in GOLDEN.glob("open/micro/*/case.json"))
TOLERANCE = 1e-4
HAS_STATE = {"conv_lstm", "crnn", "gru", "history", "lstm", "rnn"}

pytestmark = needs.shared("golden")


@pytest.fixture(scope="module")
def judge():
    needs.package("onnxruntime")
    needs.package("onnx")
    spec = importlib.util.spec_from_file_location("golden_check", GOLDEN / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("folder", CASES, ids=[path.name for path in CASES])
def test_every_layer_agrees_with_darknet_or_is_refused(judge, folder):
    case = json.loads((folder / "case.json").read_text())
    network = graph.build(cfg.read(folder / "net.cfg"), time_steps=case["time_steps"])
    with tempfile.TemporaryDirectory() as temporary:
        path = judge.weights_for(str(folder), case, temporary)
        plan = lower(network, weights.load(path, network))
    remembers = next((node for node in network.nodes if node.kind in HAS_STATE), None)
    if any(tensor.is_state for tensor in plan.tensors):
        title = f"net.cfg: layer {remembers.index} [{remembers.kind}]: ONNX: "
        with pytest.raises(ConfigError, match=re.escape(title)):
            run(plan, network, None)
        return

    given = judge.inputs_for(case)[0].reshape(-1, *network.net.shape.sides)
    kept = plan.keeping_layers()
    values = dict(zip(kept.outputs, run(kept, network, given), strict=True))
    with np.load(folder / "golden.npz") as golden:
        for layer in case["layers"]:
            if layer["type"] not in judge.UNGRADED:
                got = values[plan.layers[layer["index"]]]
                error = judge.compare_layer(got, golden, 0, layer)
                assert error is None or error < TOLERANCE, layer
    if plan.heads:
        compare_rows(plan, network, given)


def compare_rows(plan, network, given):
    if any(getattr(head, "tree_parents", ()) for head in plan.heads):
        with pytest.raises(ConfigError, match="a tree of classes"):
            run(plan, network, given, layout="darknet")
        return
    (rows,) = run(plan, network, given, layout="darknet")
    device = open_device("cpu:1")
    expected = device.compile(optimise(plan, device.passes), batch=len(given)).detect(
        given, threshold=0.3
    )
    device.close()
    for found, wanted in zip(detected(rows, plan, 0.3), expected, strict=True):
        assert len(found) == len(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def test_some_cases_are_refused_and_some_accepted():
    assert len(CASES) > 100


def test_titles_name_every_layer():
    network = graph.build(cfg.read(CASES[0] / "net.cfg"))
    assert network.titles[0].startswith("net.cfg: layer 0 [")
