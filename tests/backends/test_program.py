"""Programs apart from their ops: rows, recurrent state, memory, errors and closing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends import open_device
from engine.backends.base import Device, Program
from engine.errors import EngineError, InputError
from engine.plan import ops
from engine.plan.build import Arena, Plan, PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape, Window
from tests.backends.head_cases import plan_of_two_and_one_class
from tests.tails import conv2d

Array = NDArray[Any]


def small_plan() -> Plan:
    """Return a plan of a convolution of 3 x 6 x 8 and a pool; both are outputs."""
    builder = PlanBuilder(Shape(3, 6, 8))
    weight = builder.constant("weight", np.random.default_rng(1).standard_normal((4, 3, 3, 3)))
    conv = builder.emit(
        conv2d(
            builder.tensor(Shape(4, 6, 8)),
            builder.source,
            weight,
            padding=(1, 1, 1, 1),
            activation="leaky",
        )
    )
    pool = builder.emit(ops.MaxPool(builder.tensor(Shape(4, 3, 4)), conv, Window((2, 2), (2, 2))))
    return builder.build([conv, pool], [conv, pool])


def counter_plan(steps: int) -> Plan:
    """Return a plan of state = state + image for each time step; outputs are all states."""
    builder = PlanBuilder(Shape(2, 1, 3), steps)
    state = builder.tensor(Shape(2, 1, 3), steps=1, is_state=True)
    sums = []
    for step in range(steps):
        image = builder.emit(
            ops.TakeStep(builder.tensor(Shape(2, 1, 3), steps=1), builder.source, step)
        )
        total = builder.emit(ops.Add(builder.tensor(Shape(2, 1, 3), steps=1), (state, image)))
        builder.emit(ops.Store(state, total))
        sums.append(total)
    joined = builder.emit(ops.JoinSteps(builder.tensor(Shape(2, 1, 3)), tuple(sums)))
    return builder.build([joined], [joined, sums[-1]])


def images(rows: int, sides: tuple[int, int, int] = (3, 6, 8)) -> Array:
    return np.random.default_rng(rows).random((rows, *sides), dtype=np.float32)


@pytest.fixture
def program(device: Device) -> Iterator[Program]:
    program = device.compile(small_plan(), batch=3)
    yield program
    program.close()


# ---------------------------------------------------------------- rows and outputs


def test_outputs_are_contiguous_float32_copies(program: Program) -> None:
    first = program.forward(images(2))
    kept = [output.copy() for output in first]
    program.forward(images(3))
    for output, before, shape in zip(first, kept, [(2, 4, 6, 8), (2, 4, 3, 4)], strict=True):
        assert output.shape == shape
        assert output.dtype == np.float32
        assert output.flags.c_contiguous
        np.testing.assert_array_equal(output, before)


def test_rows_do_not_influence_each_other(program: Program) -> None:
    batch = images(3)
    together = program.forward(batch)
    for row in range(3):
        alone = program.forward(batch[row : row + 1])
        for output, single in zip(together, alone, strict=True):
            np.testing.assert_allclose(output[row], single[0], rtol=1e-5, atol=1e-6)


def test_any_number_of_rows_in_any_order(program: Program) -> None:
    expected = {rows: program.forward(images(rows))[1] for rows in (3, 1, 2)}
    for rows in (1, 2, 3, 1):
        np.testing.assert_array_equal(program.forward(images(rows))[1], expected[rows])


def test_images_may_have_any_strides(program: Program) -> None:
    upright = images(2)
    turned = np.asarray(upright.transpose(0, 3, 2, 1), order="C").transpose(0, 3, 2, 1)
    assert not turned.flags.c_contiguous
    np.testing.assert_array_equal(program.forward(turned)[0], program.forward(upright)[0])


def test_images_are_not_changed(program: Program) -> None:
    batch = images(2)
    program.forward(batch)
    np.testing.assert_array_equal(batch, images(2))


def test_the_source_can_be_an_output(device: Device) -> None:
    plan = small_plan()
    program = device.compile(replace(plan, outputs=(plan.source,)), batch=2)
    np.testing.assert_array_equal(program.forward(images(2))[0], images(2))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (np.zeros((4, 3, 6, 8), np.float32), "images: expected 1 to 3 rows, got 4"),
        (np.zeros((0, 3, 6, 8), np.float32), "images: expected 1 to 3 rows, got 0"),
        (np.zeros((1, 6, 8, 3), np.float32), "images: expected (rows, 3, 6, 8), got (1, 6, 8, 3)"),
        (np.zeros((3, 6, 8), np.float32), "images: expected (rows, 3, 6, 8), got (3, 6, 8)"),
        (np.zeros((1, 3, 6, 8), np.uint8), "images: expected float32, got uint8"),
    ],
)
def test_invalid_images_are_refused(program: Program, batch: Array, message: str) -> None:
    with pytest.raises(InputError) as caught:
        program.forward(batch)
    assert str(caught.value) == message


# ---------------------------------------------------------------- memory


def test_an_arena_gives_the_same_values(device: Device) -> None:
    plan = small_plan()
    conv, pool = plan.outputs
    offsets = {plan.source: 192, conv: 0, pool: 192 + 144}
    placed = replace(plan, arena=Arena(offsets, 192 + 144 + 48))
    program = device.compile(plan, batch=2)
    for given, expected in zip(
        device.compile(placed, batch=2).forward(images(2)), program.forward(images(2)), strict=True
    ):
        np.testing.assert_array_equal(given, expected)


def test_activations_take_no_more_than_the_arena(device: Device) -> None:
    plan = small_plan()
    conv, pool = plan.outputs
    placed = replace(plan, arena=Arena({plan.source: 0, conv: 144, pool: 336}, 384))
    activations = device.compile(placed, batch=5).memory.activations
    if device.name == "cpu":
        assert activations == 5 * 384 * 4
    else:  # plus staging buffers for images and results
        assert 5 * 384 * 4 <= activations < 64 << 10


def test_memory_except_weights_grows_with_the_batch(device: Device) -> None:
    one, five = (device.compile(small_plan(), batch=batch).memory for batch in (1, 5))
    assert one.weights == five.weights >= 4 * 27 * 4
    if device.name == "cpu":
        assert five.activations == 5 * one.activations > 0
    else:
        assert five.activations > one.activations > 0
    assert five.total == five.weights + five.activations + five.workspace


# ---------------------------------------------------------------- state and steps


@pytest.mark.parametrize("steps", [1, 3])
def test_state_is_kept_between_runs_until_reset(device: Device, steps: int) -> None:
    program = device.compile(counter_plan(steps), batch=2)
    batch = images(2 * steps, (2, 1, 3))
    by_step = batch.reshape(steps, 2, 2, 1, 3)
    expected = np.cumsum(by_step, axis=0)

    first, last = program.forward(batch)
    np.testing.assert_allclose(first.reshape(expected.shape), expected, rtol=1e-6)
    np.testing.assert_allclose(last, expected[-1], rtol=1e-6)

    second, _ = program.forward(batch)
    np.testing.assert_allclose(second.reshape(expected.shape), expected + expected[-1], rtol=1e-6)

    program.reset()
    np.testing.assert_array_equal(program.forward(batch)[0], first)


def test_fewer_sequences_than_the_batch(device: Device) -> None:
    program = device.compile(counter_plan(3), batch=4)
    batch = images(3, (2, 1, 3))
    joined, last = program.forward(batch)
    np.testing.assert_allclose(joined, np.cumsum(batch, axis=0), rtol=1e-6)
    assert last.shape == (1, 2, 1, 3)


def test_programs_do_not_share_state(device: Device) -> None:
    one, other = (device.compile(counter_plan(1)) for _ in range(2))
    batch = images(1, (2, 1, 3))
    one.forward(batch)
    np.testing.assert_array_equal(other.forward(batch)[0], batch)


def test_rows_are_whole_sequences(device: Device) -> None:
    program = device.compile(counter_plan(3), batch=2)
    with pytest.raises(InputError, match="multiple of 3 time steps, got 4 rows"):
        program.forward(images(4, (2, 1, 3)))


# ---------------------------------------------------------------- heads


def detecting_plan() -> Plan:
    builder = PlanBuilder(Shape(7, 2, 3))
    shape = builder.source.shape
    heads = []
    for anchor in ((10.0, 14.0), (40.0, 20.0)):
        out = builder.emit(ops.YoloOutput(builder.tensor(shape), builder.source, 1, 2))
        builder.head(ops.YoloHead(out, 2, anchors=(anchor,), network=(96, 64)))
        heads.append(out)
    return builder.build(heads, heads)


def test_detect_returns_the_candidates_of_each_row_by_head(device: Device) -> None:
    program = device.compile(detecting_plan(), batch=2)
    batch = np.full((2, 7, 2, 3), -9, np.float32)
    batch[1, 4:, 1, 2] = 9  # one cell of the second picture
    batch[1, :4, 1, 2] = 0
    nothing, found = program.detect(batch, threshold=0.5)
    assert nothing.shape == (0, 7)
    np.testing.assert_allclose(
        found[:, :4],
        [[2.5 / 3, 1.5 / 2, 10 / 96, 14 / 64], [2.5 / 3, 1.5 / 2, 40 / 96, 20 / 64]],
        rtol=1e-5,
    )
    assert found.dtype == np.float32


def test_classes_that_a_head_does_not_have_score_zero(device: Device) -> None:
    program = device.compile(plan_of_two_and_one_class())
    (found,) = program.detect(np.ones((1, 7, 4, 5), np.float32), threshold=0.5)
    sure = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(found[:20, 5:], [[sure**2, sure**2]] * 20, rtol=1e-5)
    np.testing.assert_allclose(found[20:, 5:], [[sure**2, 0]] * 20, rtol=1e-5)


def test_detect_needs_a_head(program: Program) -> None:
    with pytest.raises(InputError, match="a detection layer"):
        program.detect(images(1), threshold=0.5)


# ---------------------------------------------------------------- use


def test_many_threads_may_use_one_program(program: Program) -> None:
    batches = [images(rows) for rows in (1, 2, 3)] * 8
    expected = [program.forward(batch)[1] for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda batch: program.forward(batch)[1], batches))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_infinite_values_raise_no_warning() -> None:
    device = open_device("cpu")  # NumPy warns; on a GPU, split products turn infinities into NaN
    builder = PlanBuilder(Shape(8, 16, 16))
    weight = builder.constant("weight", np.full((8, 8, 3, 3), 3e38))
    out: Tensor = builder.source
    for activation in ("swish", "mish", "logistic"):
        out = builder.emit(
            conv2d(
                builder.tensor(Shape(8, 16, 16)),
                out,
                weight,
                padding=(1, 1, 1, 1),
                activation=activation,
            )
        )
    program = device.compile(builder.build([out], [out]), batch=2)
    result = program.forward(np.full((2, 8, 16, 16), 3e38, np.float32))[0]
    np.testing.assert_array_equal(result, 1)


def test_a_closed_program_raises_an_error(device: Device) -> None:
    program = device.compile(small_plan())
    program.close()
    program.close()
    for use in (program.reset, lambda: program.forward(images(1))):
        with pytest.raises(EngineError, match="closed"):
            use()


def test_precision_is_checked(device: Device) -> None:
    with pytest.raises(InputError, match="Did you mean 'float32'"):
        device.compile(small_plan(), precision="float23")


def test_batch_is_checked(device: Device) -> None:
    with pytest.raises(InputError, match="batch: expected at least 1, got 0"):
        device.compile(small_plan(), batch=0)
