"""Stages and profiles of programs, on each kind of device."""

import numpy as np
import pytest

from engine.backends.base import TimedProgram
from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.errors import InputError
from engine.passes import optimise
from engine.plan import ops


def plan_of(model):
    network = graph.build(cfg.read(model.cfg))
    return lower(network, weights.load(model.weights, network))


def images(plan, rows):
    return np.random.default_rng(0).random((rows, *plan.source.shape.sides), np.float32)


def assert_same(found, expected):
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)


def test_stages_return_the_result_of_an_ordinary_run(device, tiny_detector):
    program = device.compile(plan_of(tiny_detector), batch=2)
    assert isinstance(program, TimedProgram)
    given = images(program.plan, 2)
    for _ in range(3):
        stages, outputs = program.stages(given)
        assert min(stages.upload, stages.forward, stages.download) > 0
        assert_same(outputs, program.forward(given))
        _, rows = program.stages(given, threshold=0.3)
        assert_same(rows, program.detect(given, threshold=0.3))


@pytest.mark.parametrize("has_passes", [True, False])
def test_a_profile_has_every_op_once(device, tiny_detector, has_passes):
    plan = plan_of(tiny_detector)
    plan = optimise(plan, device.passes) if has_passes else plan
    program = device.compile(plan)
    given = images(plan, 1)
    before = program.forward(given)
    rows = program.profile(given, repeats=2)
    assert [row.op for row in rows] == list(plan.ops)
    assert all(row.milliseconds >= 0 for row in rows)
    assert all(bool(row.algorithm) == isinstance(row.op, ops.Conv2d) for row in rows)
    assert_same(program.forward(given), before)


def test_a_profile_resets_the_state(device, tiny_recurrent):
    program = device.compile(plan_of(tiny_recurrent))
    given = images(program.plan, 1)
    first = program.forward(given)
    program.profile(given, repeats=2)
    assert_same(program.forward(given), first)


def test_boxes_need_a_detection_layer(device, tiny_classifier):
    program = device.compile(plan_of(tiny_classifier))
    with pytest.raises(InputError, match="expected a network with a detection layer"):
        program.stages(images(program.plan, 1), threshold=0.5)


def test_a_device_describes_itself(device):
    assert len(device.describe()) > 5
