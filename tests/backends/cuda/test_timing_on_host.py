"""What a card's time goes into, measured where kernels run on the CPU."""

import numpy as np
import pytest

from engine.backends.base import Placed
from engine.backends.cuda import conv
from engine.backends.cuda.driver.context import Card
from engine.backends.cuda.runtime import hardware_peaks
from engine.plan import ops
from engine.vision.resize import Placement
from tests.backends.cuda.host import needs_gxx
from tests.backends.test_timing import (  # noqa: F401  the same must hold here
    images,
    plan_of,
    test_a_device_describes_itself,
    test_a_profile_has_every_op_once,
    test_a_profile_resets_the_state,
    test_boxes_need_a_detection_layer,
    test_stages_return_the_result_of_an_ordinary_run,
)
from tools.soak_cuda import times_on_device

pytestmark = needs_gxx


@pytest.fixture
def device(host):
    return host


def test_pictures_are_scaled_in_the_forward_stage(device, tiny_detector):
    program = device.compile(plan_of(tiny_detector))
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    placed = [Placed(pixels, Placement((40, 30), (64, 48)))]
    _, rows = program.stages(placed, threshold=0.3)
    np.testing.assert_array_equal(rows[0], program.start_detect(placed, threshold=0.3).result()[0])


def test_each_algorithm_of_a_convolution_is_timed(device, tiny_detector):
    plan = plan_of(tiny_detector)
    op = next(op for op in plan.ops if isinstance(op, ops.Conv2d))
    chosen, times = device.algorithm_times(plan, op)
    assert next(iter(times)) == chosen
    assert {"direct", "im2col_gemm", "tiled"} <= set(times)
    assert set(times) <= set(conv.ALGORITHMS)
    assert all(time >= 0 for time in times.values())


@pytest.mark.parametrize(
    ("capability", "multiprocessors", "clock", "precision", "expected"),
    [
        ((9, 0), 132, 1.98e9, "float32", 178e12),  # H200: a third of its tf32
        ((8, 9), 128, 2.52e9, "float32", 82.6e12),  # RTX 4090: without matrix units
        ((9, 0), 132, 1.83e9, "float16", 989e12),
        ((9, 0), 132, 1.83e9, "int8", 989e12),  # of its float16 values
        ((8, 0), 108, 1.41e9, "tf32", 156e12),  # A100
        ((7, 5), 40, 1.59e9, "float16", 65e12),  # T4
        ((7, 5), 40, 1.59e9, "tf32", None),
        ((99, 0), 132, 1.98e9, "float32", None),
        ((9, 0), 132, 0.0, "float32", None),
    ],
)
def test_the_most_a_card_could_do(capability, multiprocessors, clock, precision, expected):
    card = Card("card", capability, multiprocessors, 1 << 30, clock, bandwidth=4e12)
    found = hardware_peaks.peaks(card, precision)
    if expected is None:
        assert found is None
    else:
        assert found.operations == pytest.approx(expected, rel=0.01)
        assert (found.bytes, found.multiprocessors) == (4e12, multiprocessors)
        assert found.value_bytes == (2 if precision in ("float16", "int8") else 4)
        if precision in ("float16", "int8"):
            assert found.int8_operations == 2 * found.operations


def test_copies_and_run_are_timed_behind_other_runs(device, tiny_detector):
    program = device.compile(plan_of(tiny_detector))
    given = images(program.plan, 1)
    expected = program.detect(given, threshold=0.3)
    times = times_on_device(program, given, 0.3, 4)
    assert len(times) == 4
    assert min(times) > 0
    np.testing.assert_array_equal(program.detect(given, threshold=0.3)[0], expected[0])
