"""Benchmarks of stages, ops, algorithms and peers, and their chart."""

import sys
from contextlib import closing
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from engine.benchmark import algorithms, chart, layers, peers, roofline, stages
from engine.benchmark.peers import onnxruntime_peer, opencv_peer, pytorch_peer
from engine.benchmark.peers.base import PeerUnavailable
from engine.benchmark.stages import TimeBudget
from engine.benchmark.workload import Workload
from engine.darknet import cfg, graph, random_weights, weights
from engine.darknet.lower import lower
from engine.errors import InputError
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape
from engine.settings import Settings
from tests import needs

QUICK = TimeBudget(warm_up=0, seconds=0)
PEER_FILES = {"onnxruntime": onnxruntime_peer, "cv2": opencv_peer, "torch": pytorch_peer}


def workload_of(model, device, **more):
    network = graph.build(cfg.read(model.cfg))
    plan = lower(network, random_weights.arrays(network))
    return Workload(network, plan, device, passes=device.passes, is_trained=False, **more)


def test_stages_sum_to_at_most_the_whole_run(cpu, tiny_detector):
    rows = stages.measure(workload_of(tiny_detector, cpu), 2, TimeBudget(0.01, 0.05))
    assert tuple(row.stage for row in rows) == stages.STAGES
    *parts, total = rows
    assert 0 < sum(part.median for part in parts) <= total.p99 * len(parts)
    assert all(row.median <= row.p90 <= row.p99 for row in rows)
    assert all(row.runs >= 10 and row.batch == 2 for row in rows)
    assert total.rate == pytest.approx(2e3 / total.median)


@pytest.mark.parametrize("kind", ["tiny_classifier", "tiny_recurrent"])
def test_networks_without_boxes_are_timed_too(cpu, request, kind):
    workload = workload_of(request.getfixturevalue(kind), cpu)
    rows = {row.stage: row for row in stages.measure(workload, 1, QUICK)}
    assert rows["forward"].median > 0
    assert (rows["preprocess"].median > 0) == (kind == "tiny_classifier")


def test_percentiles_are_computed_from_the_runs():
    taken = [(float(each),) for each in range(101)]
    (row,) = stages.summarize(4, ["forward"], taken)
    assert (row.median, row.p90, row.p99, row.runs) == (50, 90, 99, 101)
    assert row.rate == 80


def test_random_weights_leave_a_usual_number_of_boxes(cpu, tiny_detector):
    workload = workload_of(tiny_detector, cpu)
    program = workload.compile(1)
    threshold = workload.threshold(program)
    (rows,) = program.detect(workload.images(1), threshold=threshold)
    assert 50 <= (rows[:, 5:] > 0).any(axis=1).sum() <= 100
    program.close()


def test_scores_that_overflow_do_not_set_the_threshold(cpu, overflowing):
    network = graph.build(cfg.read(overflowing.cfg))
    plan = lower(network, weights.load(overflowing.weights, network))
    workload = Workload(network, plan, cpu, passes=cpu.passes, is_trained=False)
    with closing(workload.compile(1)) as program:
        assert np.isnan(program.detect(workload.images(1), threshold=0.0)[0][:, 5:]).any()
        assert workload.threshold(program) == Settings.threshold


def test_every_op_has_a_row_with_its_section_and_its_work(cpu, tiny_detector):
    workload = workload_of(tiny_detector, cpu)
    profile = layers.measure(workload, 2, repeats=2)
    assert (profile.batch, profile.bound, profile.reached) == (2, None, None)
    assert profile.forward > 0
    rows = profile.layers
    assert sum(row.share for row in rows) == pytest.approx(1)
    first = rows[0]
    assert (first.section, first.op) in {("convolutional", "Conv2d"), ("maxpool", "Conv2d")}
    assert first.operations == 2 * 2 * (8 * 24 * 32) * 27
    assert first.rate == pytest.approx(first.operations * 1e3 / first.milliseconds)
    assert first.algorithm
    assert rows[-1].section == "yolo"


def test_only_multiply_adds_count_as_work():
    plan = PlanBuilder(Shape(4, 6, 6))
    weight = plan.constant("w", np.zeros((4, 2, 3, 3)))
    conv = ops.Conv2d(plan.tensor(Shape(4, 6, 6)), plan.source, weight, padding=(1,) * 4, groups=2)
    dense = ops.MatMul(plan.tensor(Shape(5)), plan.source, plan.constant("m", np.zeros((5, 144))))
    deconv = ops.Deconv2d(
        plan.tensor(Shape(3, 7, 7)), plan.source, plan.constant("d", np.zeros((4, 3, 2, 2)))
    )
    local = ops.LocalConv2d(
        *(plan.tensor(Shape(2, 6, 6)), plan.source),
        *(plan.constant("l", np.zeros((36, 2, 4))), plan.constant("b", np.zeros(72))),
    )
    relu = ops.Activate(plan.tensor(Shape(4, 6, 6)), plan.source, "relu")
    found = [roofline.operations(op) for op in (conv, dense, deconv, local, relu)]
    assert found == [2 * 144 * 18, 2 * 720, 2 * 144 * 12, 2 * 288, 0]


def test_algorithms_need_a_device_that_chooses(cpu, tiny_detector):
    with pytest.raises(InputError, match="has no autotuning"):
        next(algorithms.measure(workload_of(tiny_detector, cpu), 1))


def test_convolutions_that_add_maps_of_other_sizes_are_measured_apart():
    small, large = (Tensor(9, Shape(channels, side, side)) for channels, side in ((8, 2), (4, 4)))
    conv = ops.Conv2d(Tensor(1, small.shape), small, ops.Constant("w", (8, 8, 1, 1)))
    found = [conv.then(ops.Add(small, (conv.out, more))) for more in (small, small, large)]
    plan = SimpleNamespace(ops=[conv, *found])
    assert algorithms._group_identical(plan) == [[conv], found[:2], found[2:]]


@pytest.mark.parametrize("package", PEER_FILES)
def test_peer_gives_our_outputs(cpu, tiny_detector, package):
    needs.package(package)
    needs.package("onnx")
    workload = workload_of(tiny_detector, cpu)
    images = workload.images(2)
    program = workload.compile(2)
    (expected,) = program.forward(images)
    program.close()
    (found,) = PEER_FILES[package].open_peer(workload, 2)(images)
    np.testing.assert_allclose(np.reshape(found, expected.shape), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("package", PEER_FILES)
def test_a_peer_that_is_not_installed_says_so(cpu, tiny_detector, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PeerUnavailable, match=r"not installed\. Run: pip install"):
        PEER_FILES[package].open_peer(workload_of(tiny_detector, cpu), 1)


def test_a_peer_that_cannot_run_the_network_says_why(cpu, tiny_recurrent):
    needs.package("onnxruntime")
    needs.package("onnx")
    with pytest.raises(PeerUnavailable, match=r"layer 0 \[rnn\]: ONNX: "):
        onnxruntime_peer.open_peer(workload_of(tiny_recurrent, cpu), 1)


def test_peers_are_timed_in_the_same_run_and_missing_ones_are_reported(
    cpu, tiny_detector, monkeypatch
):
    monkeypatch.setitem(sys.modules, "torch", None)
    told = []
    found = peers.measure(workload_of(tiny_detector, cpu), 1, QUICK, tell=told.append)
    assert peers.ENGINE in found
    assert "pytorch" not in found
    assert "PyTorch: skipped, not installed. Run: pip install torch" in told
    assert len({each.runs for each in found.values()}) == 1


def test_the_chart_has_a_bar_for_every_speed():
    speeds = {"a": {"batch 1": 10.0, "batch 8": 40.0}, "b": {"batch 8": 0.5}}
    content = chart.png("net", "machine", speeds, reference=(20.0, "enough"))
    image = Image.open(BytesIO(content))
    assert image.format == "PNG"
    colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    assert {*chart._COLOURS[:2], chart._INK} <= colours
    assert not set(chart._COLOURS[2:]) & colours


def test_a_long_line_about_the_machine_is_wrapped_and_not_cut_off():
    content = chart.png("net", "a long list of libraries, " * 10, {"a": {"batch 1": 10.0}})
    image = Image.open(BytesIO(content)).convert("RGB")
    margin = image.crop((image.width - chart._RIGHT + 1, 0, image.width, image.height))
    assert margin.getcolors() == [(margin.width * margin.height, chart._PAPER)]
