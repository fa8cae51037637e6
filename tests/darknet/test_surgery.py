"""Fused networks of every golden case and recurrent layer give the same outputs."""

import importlib.util
import json

import numpy as np
import pytest

from engine.darknet import cfg, graph, surgery, weights
from engine.darknet.lower import lower
from engine.errors import InputError, WeightsError
from engine.plan import ops
from tests.darknet.small_networks import graph_of, random_weights, shared_folder

RECURRENT = """
[{kind}]
batch_normalize=1
pad=1
size=3
output=8
hidden=4
activation=tanh
"""


def outputs_of(cpu, network, arrays, given):
    plan = lower(network, arrays).keeping_layers()
    program = cpu.compile(plan, batch=len(given) // plan.steps)
    twice = program.forward(given), program.forward(given)  # the second has another state
    return [*twice[0], *twice[1]]


def assert_equal(cpu, network, arrays, path, steps=1):
    text, fused, folded = surgery.fuse(path, arrays)
    assert "batch_normalize" not in text
    assert all("mean" not in each or "weight" not in each for each in folded)
    shape = network.net.shape
    given = np.random.default_rng(0).random((2 * steps, *shape.sides), np.float32)
    before = outputs_of(cpu, network, arrays, given[: 2 * network.net.time_steps])
    after = outputs_of(cpu, fused, folded, given[: 2 * network.net.time_steps])
    for left, right in zip(before, after, strict=True):
        scale = max(1.0, float(np.abs(left).max()))
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5 * scale)
    return fused, folded


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm", "crnn", "conv_lstm", "connected"])
def test_every_part_of_a_layer_is_folded(cpu, tmp_path, kind):
    network = graph_of(RECURRENT.format(kind=kind))
    path = tmp_path / "net.cfg"
    path.write_text("[net]\nwidth=10\nheight=6\nchannels=8\n" + RECURRENT.format(kind=kind))
    _, folded = assert_equal(cpu, network, random_weights(network), path)
    assert not any(name.endswith("variance") for each in folded for name in each)


@pytest.mark.parametrize("filters", [8, 5])
def test_filters_on_the_second_axis_are_scaled_along_it(cpu, tmp_path, filters):
    layers = f"[deconvolutional]\nbatch_normalize=1\nfilters={filters}\nsize=2\nstride=2\n"
    path = tmp_path / "net.cfg"
    path.write_text("[net]\nwidth=10\nheight=6\nchannels=8\n" + layers)
    network = graph_of(layers)
    _, (folded,) = assert_equal(cpu, network, random_weights(network), path)
    assert set(folded) == {"bias", "weight"}


def test_numbers_that_become_infinite_are_refused(tmp_path):
    """Each is finite in its file, as training that diverges leaves them."""
    path = tmp_path / "net.cfg"
    path.write_text("[net]\nwidth=4\nheight=4\nchannels=2\n[conv]\nbatch_normalize=1\n")
    network = graph.build(cfg.read(path))
    arrays = random_weights(network)
    arrays[0]["scale"][:] = 1e38
    arrays[0]["variance"][:] = 0
    with pytest.raises(WeightsError, match=r"^net.cfg: layer 0 \[conv.* folded into them\. Did"):
        surgery.fuse(path, arrays)
    files = [tmp_path / "a.weights", tmp_path / "b.weights"]
    for scale, file in zip((3e38, 2e38), files, strict=True):
        arrays[0]["scale"][:] = scale
        weights.save(file, network, arrays)
    with pytest.raises(WeightsError, match=r"scale: 1 of 1 numbers are beyond .* sum of 2 files"):
        surgery.average(network, files)


def test_batchnorm_layer_is_kept(tmp_path):
    path = tmp_path / "net.cfg"
    path.write_text("[net]\nwidth=4\nheight=4\nchannels=2\n[batchnorm]\n")
    network = graph.build(cfg.read(path))
    arrays = random_weights(network)
    _, fused, folded = surgery.fuse(path, arrays)
    assert folded == [*arrays]
    assert isinstance(lower(fused, folded).ops[0], ops.Normalise)


def test_lines_that_are_not_about_normalisation_stay_as_they_are(tmp_path):
    path = tmp_path / "net.cfg"
    text = "[net]\nwidth=4 # wide\nheight=4\nchannels=2\n\n; mine\n[conv]\n{}filters = 3\n"
    path.write_text(text.format(" batch_normalize = 1\n"))
    network = graph.build(cfg.read(path))
    assert surgery.fuse(path, random_weights(network))[0] == text.format("")


@pytest.mark.parametrize("count", [0, 2])
def test_a_network_is_cut_inside(count):
    network = graph_of("[conv]\n")
    with pytest.raises(InputError, match=f"expected 1 to 1 layers, got {count}"):
        surgery.cut(network, count)


@pytest.mark.slow
def test_every_small_golden_network_is_the_same_when_fused(cpu, tmp_path):
    root = shared_folder("golden")
    spec = importlib.util.spec_from_file_location("golden_check", root / "check.py")
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    fused_ones = 0
    for path in sorted(root.glob("open/micro/*/case.json")):
        case = json.loads(path.read_text())
        net = path.parent / "net.cfg"
        if case["time_steps"] > 1 or case["family"] == "xnor":  # rounding may flip signs
            continue
        network = graph.build(cfg.read(net))
        arrays = weights.load(judge.weights_for(str(path.parent), case, str(tmp_path)), network)
        if any("mean" in name for each in arrays for name in each):
            fused_ones += 1
            assert_equal(cpu, network, arrays, net)
    assert fused_ones > 20
