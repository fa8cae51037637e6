"""The kernels' own text, run on the CPU over every case: alone, inside other tensors, as halves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends import open_device
from engine.backends.base import Placed
from engine.backends.cpu import heads
from engine.backends.cuda.conv import candidates
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.ops import border, pooling
from engine.backends.cuda.ops.target import Target
from engine.plan import ops
from engine.plan.build import Plan, PlanBuilder
from engine.plan.ops import Tensor, YoloHead
from engine.plan.shapes import Shape, Window
from engine.vision.boxes import Suppression
from engine.vision.resize import Placement
from tests.backends.cases import CASES, Case, all_cases, pooled, tensor
from tests.backends.cuda.cards import CARDS, open_card
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostContext, HostDevice
from tests.backends.head_cases import HEADS, decode_by_loops, objectness_of, values_for
from tests.backends.layouts import ALONE, INSIDE, INSIDE_ALIGNED, Layout, laid_out, run_case
from tests.lanes import slow_except

Array = NDArray[Any]
Defined = Callable[[Case], Array]

SEQUENCES = 2
CARD = Target(SEQUENCES, "float32", HostContext.card.capability, HostContext.card.multiprocessors)


# Chains are what a pass makes that CUDA does not ask for.
EVERY_CASE = [case for case in all_cases() if not isinstance(case.op, ops.Chain)]
BY_EACH_ALGORITHM = [
    (case, str(choice))
    for case in CASES[ops.Conv2d]
    for choice in candidates(CARD, case.op)  # type: ignore[arg-type]
]

FLOAT_LAYOUTS = slow_except([INSIDE_ALIGNED], [ALONE, INSIDE, INSIDE_ALIGNED])
HALF_LAYOUTS = slow_except([INSIDE_ALIGNED], [ALONE, INSIDE_ALIGNED])

every_case = pytest.mark.parametrize("case", EVERY_CASE, ids=str)
by_each_algorithm = pytest.mark.parametrize(("case", "algorithm"), BY_EACH_ALGORITHM, ids=str)
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)


@pytest.fixture(scope="module")
def host() -> Iterator[HostDevice]:
    device = HostDevice()
    yield device
    device.close()


@pytest.fixture(scope="module")
def defined() -> Iterator[Defined]:
    """What NumPy makes of a case in float64: the definition, which test_ops.py checks."""
    with closing(open_device("cpu:1")) as device:
        yield cache(lambda case: run_case(device, case, sequences=SEQUENCES, precision="float64"))


@cache
def half(case: Case) -> Case:
    """The same with inputs and constants that a half can hold."""
    constants = {name: as_half(values) for name, values in case.constants.items()}
    return replace(case, draw=lambda *given: as_half(case.draw(*given)), constants=constants)


def as_half(values: Array) -> Array:
    return values.astype(np.float16).astype(np.float32)


def assert_close_as_halves(got: Array, exact: Array) -> None:
    with np.errstate(over="ignore"):
        expected = exact.astype(np.float16).astype(np.float64)
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=1)
    np.testing.assert_allclose(got, expected, rtol=4e-3, atol=2e-3 * largest)


# ---------------------------------------------------------------- ops


@needs_gxx
@pytest.mark.parametrize("layout", FLOAT_LAYOUTS, ids=str)
@every_case
def test_floats_agree_with_the_definition(
    host: HostDevice, defined: Defined, case: Case, layout: Layout
) -> None:
    got = run_case(host, case, sequences=SEQUENCES, layout=layout)
    np.testing.assert_allclose(got, defined(case), rtol=1e-5, atol=1e-5)


@needs_gxx
@pytest.mark.parametrize("layout", HALF_LAYOUTS, ids=str)
@every_case
def test_halves_agree_with_the_definition(
    host: HostDevice, defined: Defined, case: Case, layout: Layout
) -> None:
    case = half(case)
    got = run_case(host, case, sequences=SEQUENCES, layout=layout, precision="float16")
    assert_close_as_halves(got, defined(case))


FAR = np.concatenate([np.linspace(-60, 60, 2391), [-6e4, -1000, -100, -22, 22, 100, 1000, 6e4, 0]])


@needs_gxx
@pytest.mark.parametrize("name", ["swish", "mish", "logistic"])
def test_what_is_made_quickly_is_right_to_the_last_bit_of_a_half(
    host: HostDevice, name: str
) -> None:
    """Whatever shares a reciprocal: the values are in an order of their own for each sample.

    Where a swish is nothing, from -22 down, it may be a billionth of what it is of.
    """

    def shuffled(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.stack([rng.permutation(FAR) for _ in range(shape[0])]).reshape(shape)

    source, out = tensor(8, FAR.size // 8), tensor(8, FAR.size // 8)
    case = half(Case(name, ops.Activate(out, source, name), shuffled))
    got = run_case(host, case, sequences=5, precision="float16")
    with closing(open_device("cpu:1")) as device:
        exact = run_case(device, case, sequences=5, precision="float64")
    assert (abs(got - exact) <= 2**-11 * 1.01 * abs(exact) + 2**-24 + 1e-9 * abs(FAR).max()).all()
    near = abs(exact) > 1e-3
    cancelled = 1e-6 if name == "swish" else 0.0  # half of x and nearly its opposite
    np.testing.assert_allclose(got[near], exact[near], rtol=2**-11 * 1.01, atol=cancelled)


@needs_gxx
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("name", ["swish", "mish", "logistic"])
def test_what_is_no_number_stays_none(host: HostDevice, name: str, precision: str) -> None:
    """Else an overflow would not be seen. Nor does it spoil those it shares a reciprocal with."""
    source, out = tensor(8, 3), tensor(8, 3)
    values = np.zeros((1, 8, 3, 1), np.float32)
    values[0, 5, 1] = np.nan
    case = Case(name, ops.Activate(out, source, name), lambda rng, shape: values)
    got = run_case(host, case, sequences=1, precision=precision)
    assert np.argwhere(np.isnan(got)).tolist() == [[0, 5, 1, 0]]


# ---------------------------------------------------------------- convolution algorithms


class Forced:
    """A device that runs convolutions by one algorithm."""

    def __init__(self, device: HostDevice, algorithm: str) -> None:
        self._device = device
        self._algorithm = algorithm

    def compile(self, plan: Plan, **options: Any) -> Any:
        return self._device.compile(plan, algorithm=self._algorithm, **options)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("layout", FLOAT_LAYOUTS[1:], ids=str)
@by_each_algorithm
def test_every_algorithm_agrees_with_the_definition(
    host: HostDevice, defined: Defined, case: Case, algorithm: str, layout: Layout
) -> None:
    got = run_case(Forced(host, algorithm), case, sequences=SEQUENCES, layout=layout)
    np.testing.assert_allclose(got, defined(case), rtol=1e-5, atol=3e-5)


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize("layout", [ALONE, INSIDE_ALIGNED], ids=str)
@by_each_algorithm
def test_every_algorithm_agrees_with_the_definition_in_halves(
    host: HostDevice, defined: Defined, case: Case, algorithm: str, layout: Layout
) -> None:
    """What is handed back alone is made as floats."""
    case = half(case)
    forced = Forced(host, algorithm)
    got = run_case(forced, case, sequences=SEQUENCES, layout=layout, precision="float16")
    assert_close_as_halves(got, defined(case))


# ---------------------------------------------------------------- detection heads


def head_plan(head: ops.Head) -> Plan:
    return Plan(head.src, (), (head.src,), (head.src,), heads=(head,))


@needs_gxx
@every_head
@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.6])
def test_decoders_find_what_loops_find(host: HostDevice, head: ops.Head, threshold: float) -> None:
    images = np.stack([values_for(head, seed) for seed in range(3)])
    program = host.compile(head_plan(head), batch=3)
    found = program.detect(images, threshold=threshold, hierarchy=0.3)
    program.close()
    for rows, values in zip(found, images, strict=True):
        expected = decode_by_loops(head, values, threshold=threshold, hierarchy=0.3)
        assert rows.shape == (len(expected), 5 + head.classes)
        if expected:
            np.testing.assert_allclose(rows, expected, rtol=2e-5, atol=1e-6)


@needs_gxx
@every_head
def test_decoders_keep_scores_that_are_nan(host: HostDevice, head: ops.Head) -> None:
    program = host.compile(head_plan(head), batch=2)
    images = np.stack([values_for(head), np.full(head.src.shape.sides, np.nan, np.float32)])
    objectness_of(head, images[0])[1] = np.nan
    found = program.detect(images, threshold=0.1, hierarchy=0.3)
    program.close()
    for rows, values in zip(found, images, strict=True):
        expected = heads.candidates(head, values, threshold=0.1, hierarchy=0.3)
        assert np.isnan(rows[:, 5:]).any()
        np.testing.assert_allclose(rows, expected, rtol=2e-5, atol=1e-6)


@needs_gxx
@every_head
def test_decoders_read_halves(host: HostDevice, head: ops.Head) -> None:
    values = as_half(values_for(head))
    program = host.compile(head_plan(head), precision="float16")
    (rows,) = program.detect(values[None], threshold=0.2, hierarchy=0.3)
    program.close()
    expected = decode_by_loops(head, values, threshold=0.2, hierarchy=0.3)
    np.testing.assert_allclose(rows, expected, rtol=2e-5, atol=1e-6)


# ---------------------------------------------------------------- what a tuner measures with


@needs_gxx
def test_noise_is_numbers_of_both_signs_as_halves_and_as_floats(host: HostDevice) -> None:
    words = np.zeros(5000, np.uint32)
    program = host.compile(narrow_plan())
    with closing(program):
        border.fill_with_noise(program._device.runner.gpu, words.ctypes.data, words.nbytes)
        host.context.stream.synchronize()
    for kind, least in ((np.float16, 2**-3), (np.float32, 0)):
        values = words.view(kind)
        assert np.isfinite(values).all()
        assert (abs(values) >= least).all()
        assert (abs(values) < 2).all()
        assert 0.4 < (values < 0).mean() < 0.6
    assert len(np.unique(words)) > 4900


# ---------------------------------------------------------------- nothing is left out


def narrow_plan() -> Plan:
    """Halves, floats of a narrow map, halves, and floats that are handed back."""
    builder = PlanBuilder(Shape(16, 4, 4))
    made = builder.source
    for number, channels in enumerate((16, 8, 16, 4)):
        weight = builder.constant(str(number), np.zeros((channels, made.shape.channels, 1, 1)))
        made = builder.emit(ops.Conv2d(builder.tensor(Shape(channels, 4, 4)), made, weight))
    return builder.build((made,), (made,))


# Tests of their own launch them: test_int8_ops.py and the tests of videos.
ELSEWHERE = {
    "frame_to_rgb",
    *("add_bytes", "add_bytes_packed", "add_quarters_to_bytes"),
    *("dequantise", "dequantise_packed", "quantise", "quantise_packed"),
}


@pytest.mark.slow
def test_every_kernel_is_launched_by_a_case_above() -> None:
    device = HostDevice(runs_kernels=False)
    runs = [(case, None) for case in EVERY_CASE] + BY_EACH_ALGORITHM
    for case, algorithm in runs:
        for layout in (ALONE, INSIDE):
            plan, images = laid_out(case, sequences=SEQUENCES, layout=layout)
            device.compile(plan, batch=SEQUENCES, algorithm=algorithm).forward(images)
    for head in HEADS.values():
        images = values_for(head)[None]
        device.compile(head_plan(head)).detect(images, threshold=0.1, hierarchy=0.5)
    images = np.zeros((1, 16, 4, 4), np.float32)
    device.compile(narrow_plan(), precision="float16").forward(images)
    source = Tensor(-1, Shape(3, 4, 4))
    picture = Placed(np.zeros((5, 6, 3), np.uint8), Placement((6, 5), (4, 4)))
    device.compile(Plan(source, (), (source,), (source,))).start_forward([picture]).result()
    head = YoloHead(source, classes=1, anchors=((1, 1),), network=(4, 4))
    with_head = device.compile(Plan(source, (), (source,), (source,), heads=(head,)))
    with_head.start_boxes([picture], Suppression(), threshold=0.5)
    program = device.compile(narrow_plan())
    border.fill_with_noise(program._device.runner.gpu, int(device.context.driver.mem_alloc(64)), 64)
    launched = device.context.launched
    device.close()
    kernels = set(compiler.signatures(compiler.translation_unit()))
    assert launched - ELSEWHERE == kernels - ELSEWHERE


SHARING = {
    "5x5": (16, 7, 9, Window((5, 5), (1, 1), (2, 2, 2, 2))),
    "3x3": (24, 4, 5, Window((3, 3), (1, 1), (0, 1, 2, 1))),
    "larger_than_the_map": (8, 5, 4, Window((9, 9), (1, 1), (4, 4, 4, 4))),
    "13x13": (8, 14, 11, Window((13, 13), (1, 1), (6, 6, 6, 6))),
    "stride_2_across": (8, 10, 12, Window((4, 3), (1, 2), (1, 0, 2, 1))),
    "beyond_the_map": (8, 3, 4, Window((3, 2), (1, 2), (3, 0, 3, 3))),
}


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(("channels", "height", "width", "window"), SHARING.values(), ids=SHARING)
@pytest.mark.parametrize("card", CARDS)
def test_pools_that_share_lines_are_the_same_to_the_bit(
    monkeypatch: pytest.MonkeyPatch,
    card: str,
    channels: int,
    height: int,
    width: int,
    window: Window,
    precision: str,
) -> None:
    src = (channels, height, width)
    source = tensor(*src)

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.standard_normal(shape).astype(np.float16).astype(np.float32)

    case = Case("pool", ops.MaxPool(pooled(src, window), source, window), draw)
    results = []
    with open_card(card) as device:
        for shares_lines in (pooling.shares_lines, lambda *_: False):
            monkeypatch.setattr(pooling, "shares_lines", shares_lines)
            results.append(run_case(device, case, sequences=SEQUENCES, precision=precision))
    assert results[0].any()
    np.testing.assert_array_equal(*results)
