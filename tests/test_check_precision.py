"""tools/check_precision.py accepts small deviations and nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.errors import InputError
from engine.evaluate.examples import Objects
from engine.evaluate.ground_truth import Entry, GroundTruth
from engine.passes import optimise
from engine.passes.quantise import LayerRanges
from engine.vision.boxes import Boxes
from engine.vision.resize import Placement
from tests import needs, small_models
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tools import check_precision

SHARED = Path(__file__).parents[2] / "shared"
THRESHOLD = 0.3


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    text = small_models.DETECTOR.replace("filters=8", "filters=12")
    model = small_models.write_model(tmp_path_factory.mktemp("model"), text, ["a", "b", "c"])
    network = graph.build(cfg.read(model.cfg))
    plan = lower(network, weights.load(model.weights, network))
    plan = replace(plan, constants={name: each * 0.2 for name, each in plan.constants.items()})
    size = network.net.width, network.net.height
    images = np.random.default_rng(0).random((2, 1, *plan.source.shape.sides), np.float32)
    found = Objects.of([[8, 8, 16, 16]], [0])
    entries = tuple(Entry(row, "", lambda size: found) for row in range(2))
    truth = GroundTruth("", ("cat", "dog", "cow"), (1, 2, 3), entries, [])
    places = (Placement(size, size),) * 2
    return check_precision.Case(
        *("tiny", "models", network, plan, tuple(images), places, THRESHOLD, truth)
    )


class Disturbed:
    """A device whose other precisions are float32 with an injected error."""

    def __init__(self, device, spoil):
        self.passes = device.passes
        self._device = device
        self._spoil = spoil

    def compile(self, plan, *, batch, precision):
        program = self._device.compile(plan, batch=batch)
        return program if precision == "float32" else self._spoil(program)


class Spoilt:
    """A program with altered outputs or candidates."""

    def __init__(
        self, program, *, outputs=lambda values: values, rows=lambda rows: rows, precision="float16"
    ):
        self.precision = precision
        self._program = program
        self._outputs = outputs
        self._rows = rows
        self.reset, self.close = program.reset, program.close

    def forward(self, images):
        return tuple(map(self._outputs, self._program.forward(images)))

    def detect(self, images, **options):
        return list(map(self._rows, self._program.detect(images, **options)))


def judged(device, case, **spoils):
    disturbed = Disturbed(device, lambda program: Spoilt(program, **spoils))
    (row,) = check_precision.check(disturbed, case, ["float16"])
    return row


def changed(columns, factor, shift=0.0):
    def change(rows):
        made = rows.copy()
        made[:, columns] = made[:, columns] * np.float32(factor) + np.float32(shift)
        return made

    return change


def test_equal_runs_pass(cpu, case):
    row = judged(cpu, case)
    assert row.passes
    assert (row.error, row.lost, row.overlap) == (0, 0, 1)
    assert row.boxes > 4
    assert row.ap == row.ap_float32
    assert "FAIL" not in str(row)


@pytest.mark.parametrize(("factor", "passes"), [(1.0015, True), (1.0025, False)])
def test_outputs_may_differ_by_two_thousandths(cpu, case, factor, passes):
    row = judged(cpu, case, outputs=lambda values: values * np.float32(factor))
    assert row.error == pytest.approx(factor - 1, rel=1e-3)
    assert row.passes == passes
    assert ("FAIL" in str(row)) != passes


def test_nan_output_misses(cpu, case):
    def spoil(values):
        values[0, 0, 0, 0] = np.nan
        return values

    assert not judged(cpu, case, outputs=spoil).passes


@pytest.mark.parametrize(("factor", "lost"), [(1.001, 0), (1.03, "all")])
def test_boxes_must_overlap_by_98_percent(cpu, case, factor, lost):
    row = judged(cpu, case, rows=changed(slice(4), factor))
    assert row.lost == (row.boxes if lost == "all" else lost)
    assert row.passes == (lost == 0)


def test_float32_with_random_weights_is_judged_by_outputs(cpu, case):
    random = replace(case, suite="golden")
    spoils = {"rows": changed(slice(4), 1.03), "precision": "float32"}
    row = judged(cpu, random, **spoils)
    assert row.passes
    assert row.lost == row.boxes
    assert str(row).endswith("in float32")
    assert not judged(cpu, random, **spoils, outputs=lambda values: values * 1.01).passes
    assert not judged(cpu, case, **spoils).passes  # it is trained


def boxes_of(*rows):
    """Make boxes of one class from rows of x, y, w, h and score."""
    values = np.array(rows, np.float32)
    return Boxes(values[:, :4], values[:, 4], np.zeros(len(rows), np.int64), values[:, 4])


@pytest.mark.parametrize(("second", "has_partner"), [(0.5990, True), (0.5970, False)])
def test_either_of_two_nearly_tied_boxes_may_stay(second, has_partner):
    first, rival = (0.5, 0.5, 0.2, 0.2, 0.6), (0.53, 0.5, 0.2, 0.2, second)
    mine, other = boxes_of(first), boxes_of((*rival[:4], 0.6))
    overlaps = check_precision.best_overlaps(mine, boxes_of(first, rival), other, THRESHOLD)
    assert (overlaps >= check_precision.MIN_IOU).tolist() == [has_partner]


def test_box_that_suppresses_nothing_replaces_no_other():
    first, far = (0.5, 0.5, 0.2, 0.2, 0.6), (0.9, 0.5, 0.2, 0.2, 0.6)
    mine, rivals, other = boxes_of(first), boxes_of(first, far), boxes_of(far)
    assert check_precision.best_overlaps(mine, rivals, other, THRESHOLD).tolist() == [0]


def test_boxes_of_another_class_are_lost(cpu, case):
    turned = judged(cpu, case, rows=lambda rows: rows[:, [0, 1, 2, 3, 4, 6, 7, 5]])
    assert turned.lost > 0


@pytest.mark.parametrize(("above", "counts"), [(0.005, False), (0.015, True)])
def test_boxes_near_the_threshold_do_not_count(cpu, case, above, counts):
    plan = optimise(case.plan, cpu.passes)
    found = check_precision.run(cpu, case, plan, "float32").kept[0]
    chosen = found.scores[len(found) // 2]
    near = replace(case, threshold=float(chosen) - above)

    def without_it(rows):
        return np.where(rows == chosen, np.float32(0), rows)

    row = judged(cpu, near, rows=without_it)
    assert row.lost == (1 if counts else 0)


def test_changed_average_precision_misses(cpu, case):
    truth = case.truth
    found = check_precision.run(cpu, case, case.plan, "float32").for_ap[0][0]
    first = found.take(found.class_ids == 0).take(slice(1))
    box = check_precision.to_ltwh(first, case.placements[0].picture)
    entries = tuple(
        replace(each, objects=lambda size: Objects.of(box, [0])) for each in truth.entries
    )
    there = replace(case, truth=replace(truth, entries=entries))
    assert judged(cpu, there).ap > 0.2
    row = judged(cpu, there, rows=lambda rows: rows * np.float32([1, 1, 1, 1, 1, 0, 1, 1]))
    assert row.ap == 0
    assert not row.passes


@pytest.mark.parametrize(("suite", "passes"), [("golden", True), ("models", False)])
def test_refusal_passes_for_random_weights_only(cpu, case, suite, passes):
    def refuse(program):
        raise InputError("net.cfg: layer 0 [convolutional]: too large")

    (row,) = check_precision.check(Disturbed(cpu, refuse), replace(case, suite=suite), ["float16"])
    assert row.passes == passes
    assert "refused: net.cfg: layer 0" in str(row)


@needs_gxx
def test_float16_is_close_to_float32(case, monkeypatch):
    monkeypatch.setattr(
        "engine.backends.cuda.lower.precision_policy._SMALL", 0
    )  # treat it as a large network
    with on_tape(HostDevice()) as device:
        (row,) = check_precision.check(device, case, ["float16"])
    assert 0 < row.error < check_precision.MAX_ERROR
    assert row.boxes > 0


@pytest.fixture
def wide(tmp_path, case):
    """A case with two layers that can be int8."""
    text = small_models.DETECTOR.replace("filters=8", "filters=12")
    first, _, rest = text.partition("[convolutional]")
    wider = "".join(
        f"[convolutional]\nfilters={n}\nsize=3\npad=1\nactivation=leaky\n\n" for n in (16, 32)
    )
    model = small_models.write_model(
        tmp_path, f"{first}{wider}[convolutional]{rest}", ["a", "b", "c"]
    )
    network = graph.build(cfg.read(model.cfg))
    plan = lower(network, weights.load(model.weights, network))
    return replace(case, network=network, plan=plan)


def test_int8_is_calibrated_and_judged_by_its_mean_loss_of_ap(cpu, wide):
    (row,) = check_precision.check(cpu, wide, ["int8"], draws=3)
    assert 0 < row.error < 0.1
    assert len(row.draws) == 3
    assert row.passes
    assert "AP50 mean loss" in str(row)
    pair = (0.5, 0.6, 0.4), (0.506, 0.6, 0.4)
    assert not replace(row, draws=(pair,)).passes
    assert replace(row, draws=(pair, (pair[0], pair[0]))).passes


def test_int8_takes_the_scales_next_to_the_weights(cpu, wide):
    silent = LayerRanges(dict.fromkeys(range(len(wide.plan.layers)), 0.0))
    assert not check_precision.int8_plan(cpu, replace(wide, ranges=silent)).scales
    assert check_precision.int8_plan(cpu, wide).scales
    assert not list(check_precision.check(cpu, replace(wide, ranges=silent), ["int8"]))


@pytest.mark.slow
@needs.shared("golden", "models")
def test_the_tool_agrees_with_itself_on_the_cpu(tmp_path, capsys):
    file = tmp_path / "rows.json"
    options = [
        "--device",
        "cpu",
        "--precisions",
        "float32",
        "--only",
        "fastest",
        "--json",
        str(file),
    ]
    assert check_precision.main([*options, "--suite", "models"]) == 0
    rows = json.loads(file.read_text())
    assert rows
    assert all(row["error"] == 0 and row["passes"] for row in rows)
    assert any(row["ap"] for row in rows)
    assert check_precision.main([*options, "--only", "act_leaky"]) == 0
    assert check_precision.main([*options, "--only", "no such network"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 rows, 0 failed"
