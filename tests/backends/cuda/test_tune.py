"""What the tuner measures, when it stops, and what it remembers; times are made up."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda import conv
from engine.backends.cuda.conv import Choice
from engine.backends.cuda.conv.sm90_splitk import SplitK
from engine.backends.cuda.driver.context import Card
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.backends.cuda.ops.target import Target
from engine.backends.cuda.tune import measure, tune_layers
from engine.errors import DeviceError, InputError
from engine.plan import ops
from engine.plan.build import Plan, PlanBuilder
from engine.plan.shapes import Shape
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.cuda.test_gates import pair_of, plan_of

TARGET = Target(2, "float32", (7, 5), 4)
HOPPER = Target(2, "float32", (9, 0), 132)


def network(*filters: int) -> Plan:
    """3x3 convolutions of a 6 x 5 map, one after the other."""
    builder = PlanBuilder(Shape(4, 6, 5))
    at = builder.source
    for number, count in enumerate(filters):
        weight = np.random.default_rng(number).standard_normal((count, at.shape.channels, 3, 3))
        constant = builder.constant(f"weight{number}", weight)
        out = builder.tensor(Shape(count, 6, 5))
        at = builder.emit(ops.Conv2d(out, at, constant, padding=(1, 1, 1, 1)))
    return builder.build([at], [at])


def signatures(plan: Plan) -> list[str]:
    return [conv.signature(TARGET, op) for op in plan.ops]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINE_CACHE", str(tmp_path))
    monkeypatch.delenv("ENGINE_TUNE", raising=False)
    return tmp_path


@pytest.fixture
def device() -> Iterator[HostDevice]:
    with on_tape(HostDevice(runs_kernels=False)) as opened:
        yield opened


class Clock:
    """Stands in for `measure`: times by algorithm; notes what was asked."""

    def __init__(self, **milliseconds: float) -> None:
        self._milliseconds = milliseconds
        self.asked: list[tuple[int, Choice]] = []

    def __call__(
        self,
        context: object,
        target: Target,
        op: ops.Conv2d,
        name: Choice,
        give_up: float,
        gate: ops.Gate | None = None,
    ) -> float:
        self.asked.append((op.out.shape.channels, name))
        return self._milliseconds.get(str(name), 1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(direct=0.2, tiled=0.1)
    monkeypatch.setattr(tune_layers, "measure", made)
    return made


def tuned(device: HostDevice, plan: Plan) -> dict[str, Choice]:
    device.compile(plan, batch=TARGET.batch, tune=True).close()
    return device.measured


# ---------------------------------------------------------------- choices


def test_the_fastest_is_chosen_and_run(device: HostDevice, clock: Clock) -> None:
    plan = network(8)
    program = device.compile(plan, batch=TARGET.batch, tune=True)
    assert device.measured == {signatures(plan)[0]: Choice("tiled")}
    program.forward(np.zeros((2, 4, 6, 5), np.float32))
    assert "tiled" in device.context.launched


@pytest.mark.slow
def test_equal_convolutions_are_measured_once_and_the_heaviest_first(
    device: HostDevice, clock: Clock
) -> None:
    tuned(device, network(4, 4, 4, 8))
    assert list(dict.fromkeys(filters for filters, _ in clock.asked)) == [4, 8]
    assert len(clock.asked) == len(set(clock.asked))
    clock.asked.clear()
    tuned(device, network(4, 4, 32))
    assert {filters for filters, _ in clock.asked} == {32}


def test_the_rule_of_thumb_is_measured_first_and_stays_unless_another_is_clearly_faster() -> None:
    op = network(8).ops[0]
    assert isinstance(op, ops.Conv2d)
    names = measure.shortlist(TARGET, op)
    assert names[0] == conv.rule_of_thumb(TARGET, op)
    assert set(names) == set(conv.candidates(TARGET, op))
    assert tune_layers.fastest(lambda name, _: 1.0 if name == names[0] else 0.98, names) == names[0]
    assert tune_layers.fastest(lambda name, _: 1.0 if name == names[0] else 0.9, names) == names[1]


@pytest.mark.parametrize(
    ("least", "wide", "chosen"),
    [(0.1, 0.109, "wide"), (0.1, 0.111, "narrow"), (0.04, 0.041, "narrow")],
)
def test_of_long_ones_a_wide_tile_may_take_little_more(
    least: float, wide: float, chosen: str
) -> None:
    names = {
        "narrow": Choice("sm90_pingpong_128x128x6x1_teams2"),
        "wide": Choice("sm90_swapped_256_teams1"),
    }
    taken = {Choice("im2col_gemm"): 0.2, names["narrow"]: least, names["wide"]: wide}
    assert tune_layers.fastest(lambda name, _: taken[name], list(taken)) == names[chosen]


def test_a_time_limit_is_given_once_there_is_a_best() -> None:
    limits = []

    def time(choice: Choice, give_up: float) -> float:
        limits.append(give_up)
        return 2.0

    tune_layers.fastest(time, [Choice("direct"), Choice("tiled")])
    assert limits[0] == inf
    assert 2 < limits[1] < 10


def three_by_three(filters: int, channels: int, side: int) -> ops.Conv2d:
    return ops.Conv2d(
        ops.Tensor(2, Shape(filters, side, side)),
        ops.Tensor(1, Shape(channels, side, side)),
        ops.Constant("weight", (filters, channels, 3, 3)),
        padding=(1, 1, 1, 1),
    )


def test_of_many_variants_only_the_most_promising_are_tried() -> None:
    op = three_by_three(64, 64, 52)
    able, names = conv.candidates(HOPPER, op), measure.shortlist(HOPPER, op)
    variants = [name for name in able if conv.get(name).estimate(HOPPER, op) is not None]
    tried = [name for name in variants if name in names]
    assert names[0] == conv.rule_of_thumb(HOPPER, op)
    families = {type(conv.ALGORITHMS[name.algorithm]) for name in variants}
    most = measure.VARIANTS + measure.FEW_VARIANTS * (len(families) - 1) + 1
    assert len(variants) > most >= len(tried) >= measure.VARIANTS
    assert {each for each in able if each.algorithm not in measure.PLAIN} - {*variants} <= {*names}


def test_of_tiles_that_do_the_same_work_two_are_tried() -> None:
    op = three_by_three(512, 256, 26)
    target = replace(HOPPER, precision="float16")
    chosen = [conv.ALGORITHMS[name.algorithm] for name in measure.shortlist(target, op)]
    works = Counter((each.family, each.work) for each in chosen if isinstance(each, SplitK))
    assert len(works) > measure.VARIANTS / 2
    assert max(works.values()) == 2


def test_kernels_of_variants_are_compiled_together_before_any_is_measured(
    device: HostDevice, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(tune_layers.compiler, "source", lambda unit, *_: unit)
    monkeypatch.setattr(
        tune_layers.compile_children,
        "compile_all",
        lambda wanted, seconds: compiled.extend(wanted) or set(compiled),
    )
    tuner = tune_layers.Tuner(device.context, {})
    plan = network(64, 48)
    tuner.tune(Lowered(plan, HOPPER), 10)
    asked = {
        conv.ALGORITHMS[name.algorithm].tile(HOPPER, op)
        for op in plan.ops
        for filters, name in clock.asked
        if op.out.shape.channels == filters
    }
    asked -= {None}
    assert asked
    assert asked <= set(compiled)
    assert len(compiled) == len(set(compiled))


def test_what_is_not_compiled_in_time_is_measured_when_the_network_is_loaded_again(
    device: HostDevice, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_slow = True

    def compile_all(wanted: Iterable[Any], seconds: float) -> set[Any]:
        kernels = ((each, getattr(each, "kernel", "")) for each in wanted)
        return {each for each, kernel in kernels if not is_slow or kernel != "sm90_splitk"}

    monkeypatch.setattr(tune_layers.compiler, "source", lambda unit, *_: unit)
    monkeypatch.setattr(tune_layers.compile_children, "compile_all", compile_all)
    plan, choices = network(64), {}
    tune_layers.Tuner(device.context, choices).tune(Lowered(plan, HOPPER), 1)
    (first,) = plan.ops
    tried = {choice for _, choice in clock.asked}
    assert tried
    slow = {each for each in tried if each.algorithm.startswith("sm90_splitk")}
    assert slow <= {conv.rule_of_thumb(HOPPER, first)}
    assert list(choices) == [conv.signature(HOPPER, first)]

    is_slow = False
    clock.asked.clear()
    again: dict[str, Choice] = {}
    tune_layers.Tuner(device.context, again).tune(Lowered(plan, HOPPER), 10)
    slow = {each for _, each in clock.asked if each.algorithm.startswith("sm90_splitk")}
    assert len(slow) > 1
    clock.asked.clear()
    tune_layers.Tuner(device.context, {}).tune(Lowered(plan, HOPPER), 10)
    assert not clock.asked


@pytest.mark.parametrize("limit", [10.0, 60.0])
def test_what_runs_in_floats_gets_what_the_rest_has_left(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    now, given = [100.0], []

    class Slow:
        def tune(self, fused: Lowered, seconds: float, report: object) -> bool:
            given.append(seconds)
            now[0] += seconds / 2
            return False

        def tune_network(self, fused: Lowered, make: Any, seconds: float) -> None:
            given.append(seconds)

    monkeypatch.setattr("engine.backends.cuda.device.monotonic", lambda: now[0])
    device._tuner = Slow()  # type: ignore[assignment]
    fused = Lowered(network(8), replace(TARGET, precision="float16"))
    device._tune(fused, limit, as_a_whole=True)
    assert given == [limit, limit / 2, *([limit / 4] if limit > 10 else [])]


# ---------------------------------------------------------------- memory of choices


def test_another_process_measures_nothing_again(device: HostDevice, clock: Clock) -> None:
    chosen = tuned(device, network(8))
    clock.asked.clear()
    later = HostDevice(runs_kernels=False)
    assert tuned(later, network(8)) == chosen
    assert not clock.asked
    later.close()


@pytest.mark.slow
def test_another_card_measures_anew(device: HostDevice, clock: Clock) -> None:
    tuned(device, network(8))
    clock.asked.clear()
    other = HostDevice(runs_kernels=False)
    other.context.card = Card("another", (7, 5), 4, 1 << 40)
    tuned(other, network(8))
    assert clock.asked
    other.close()


@pytest.mark.slow
def test_what_two_processes_measure_is_kept_together(device: HostDevice, clock: Clock) -> None:
    other = HostDevice(runs_kernels=False)
    tuned(device, network(8))
    other.compile(network(8), batch=TARGET.batch, tune=True)
    tuned(device, network(16))
    tuned(other, network(24))
    third = HostDevice(runs_kernels=False)
    assert len(tuned(third, network(8))) == 3
    other.close()
    third.close()


def test_choices_that_are_imported_replace_those_of_the_machine(
    device: HostDevice, clock: Clock
) -> None:
    plan = network(8)
    (signature,) = tuned(device, plan)
    given = json.loads(json.dumps(device.known_choices()))
    assert given["choices"][signature] == ["tiled", False]
    given["choices"][signature] = ["direct", False]
    assert device.take_choices(given, "tuned.json") == 1
    assert tuned(device, plan)[signature] == Choice("direct")
    with on_tape(HostDevice(runs_kernels=False)) as later:
        assert tuned(later, plan)[signature] == Choice("direct")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("choices", {"x": [5, False]}),
        ("choices", {"x": ["direct", "no"]}),
        ("near", {"x": [["direct", False, 1]]}),
        (
            "networks",
            {"x": {"choices": {}, "left": 5, "hopeless": {}, "has_changed": False, "passes": 0}},
        ),
        (
            "networks",
            {"x": {"choices": {}, "left": [], "hopeless": {}, "has_changed": False, "passes": "a"}},
        ),
    ],
)
def test_damaged_choices_are_refused_and_change_nothing(
    device: HostDevice, clock: Clock, part: str, content: object
) -> None:
    before = tuned(device, network(8))
    given = json.loads(json.dumps(device.known_choices())) | {part: content}
    with pytest.raises(InputError, match=r"tuned.json: is damaged"):
        device.take_choices(given, "tuned.json")
    with on_tape(HostDevice(runs_kernels=False)) as later:
        assert tuned(later, network(8)) == before


@pytest.mark.slow
def test_a_damaged_file_is_measured_again(device: HostDevice, clock: Clock, folder: Path) -> None:
    tuned(device, network(8))
    (stored,) = (folder / "tuned").iterdir()
    stored.write_bytes(b"damaged")
    clock.asked.clear()
    later = HostDevice(runs_kernels=False)
    tuned(later, network(8))
    assert clock.asked
    later.close()


def test_a_program_keeps_what_it_was_compiled_with(device: HostDevice, clock: Clock) -> None:
    plan = network(8)
    program = device.compile(plan, batch=TARGET.batch)
    tuned(device, plan)
    program.forward(np.zeros((2, 4, 6, 5), np.float32))
    assert "tiled" not in device.context.launched


# ---------------------------------------------------------------- when not


@pytest.mark.slow
def test_time_is_bounded_and_the_rest_comes_next_time(
    device: HostDevice,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = iter(range(0, 1000, 6))
    monkeypatch.setattr(tune_layers, "monotonic", lambda: float(next(now)))
    caplog.set_level(logging.INFO, logger="engine")
    plan = network(8, 16, 24)
    assert len(tuned(device, plan)) == 1
    assert "the rest is measured when the network is loaded again" in caplog.text
    assert len(tuned(device, plan)) == 2


@pytest.mark.parametrize(("given", "limit"), [("", tune_layers.SECONDS), ("0", 0), ("300", 300)])
def test_the_environment_says_how_long_it_may_take(
    monkeypatch: pytest.MonkeyPatch, given: str, limit: float
) -> None:
    monkeypatch.setenv("ENGINE_TUNE", given)
    assert tune_layers.time_limit() == limit


def test_an_environment_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_TUNE", "yes")
    with pytest.raises(InputError, match="ENGINE_TUNE: expected a number of seconds, got 'yes'"):
        tune_layers.time_limit()


@pytest.mark.parametrize(
    ("environment", "options"), [("0", {"tune": True}), ("1", {"tune": False})]
)
def test_it_can_be_switched_off(
    device: HostDevice, clock: Clock, monkeypatch: pytest.MonkeyPatch, environment, options
) -> None:
    monkeypatch.setenv("ENGINE_TUNE", environment)
    device.compile(network(8), **options)
    assert not clock.asked


def test_a_forced_algorithm_is_not_measured(device: HostDevice, clock: Clock) -> None:
    device.compile(network(8), algorithm="direct", tune=True)
    assert not clock.asked


# ---------------------------------------------------------------- measuring


@needs_gxx
def test_every_candidate_is_timed_on_scratch_memory_that_is_freed(host: HostDevice) -> None:
    context = host.context
    op = network(8).ops[0]
    assert isinstance(op, ops.Conv2d)
    for name in conv.candidates(TARGET, op):
        assert 0 < measure.measure(context, TARGET, op, name, inf) < 1000
    assert not context.driver.live


@needs_gxx
def test_what_counts_begins_at_zero(host: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that count how many of them have arrived would wait for ever, or not at all."""
    op = network(8).ops[0]
    assert isinstance(op, ops.Conv2d)
    counted = []

    class Counting(conv.Algorithm):
        name = "counting"

        def supports(self, target: Target, op: ops.Conv2d) -> bool:
            return True

        def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
            return {**constants, "arrivals": np.ones(3, np.int32)}

        def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
            if not counted:  # the first is not recorded
                host.context.stream.synchronize()
            counters = np.empty(3, np.int32)
            host.context.driver.memcpy_dtoh(counters, gpu.array(op, "arrivals"))
            counted.append(counters.tolist())

    monkeypatch.setitem(conv.ALGORITHMS, "counting", Counting())
    measure.measure(host.context, TARGET, op, Choice("counting"), inf)
    assert len(counted) > measure.COPIES
    assert not np.any(counted)


@needs_gxx
@pytest.mark.parametrize("name", ["depthwise"])
def test_a_convolution_is_timed_with_what_it_leaves_for_its_gate(
    host: HostDevice, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    op, gate = pair_of(plan_of())
    assert isinstance(op, ops.Conv2d)
    assert isinstance(gate, ops.Gate)
    algorithm, left = conv.ALGORITHMS[name], []
    enqueue_alone = algorithm.enqueue

    def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
        left.append(gpu.annotations.partial_sums)
        enqueue_alone(gpu, op)

    monkeypatch.setattr(algorithm, "enqueue", enqueue)
    assert measure.measure(host.context, TARGET, op, Choice(name), inf, gate=gate) < inf
    assert set(left) == {algorithm.partial_sums(TARGET, op, gate)} - {None}
    assert not host.context.driver.live


@pytest.mark.slow
def test_what_could_not_be_timed_is_not_chosen(device: HostDevice, clock: Clock) -> None:
    names = [Choice("im2col_gemm"), Choice("sm90_swapped_256_teams1")]
    assert tune_layers.fastest(lambda name, _: inf, names) is None
    clock._milliseconds = dict.fromkeys(conv.ALGORITHMS, inf)
    assert not tuned(device, network(8))
    clock._milliseconds = {}
    assert tuned(device, network(8))


def test_what_the_card_refuses_is_left_out_with_a_word(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(tiled=0.1)

    def measure(*arguments: Any, **options: Any) -> float:
        if arguments[3] == Choice("tiled"):
            raise DeviceError("cuda: cuLaunchKernelEx: invalid argument")
        return clock(*arguments, **options)

    monkeypatch.setattr(tune_layers, "measure", measure)
    plan = network(8)
    assert tuned(device, plan)[signatures(plan)[0]] != Choice("tiled")
    assert "tiled is left out: cuda: cuLaunchKernelEx: invalid argument" in caplog.text


def test_where_memory_is_short_nothing_is_timed() -> None:
    device = HostDevice(memory=1000, runs_kernels=False)
    op = network(8).ops[0]
    assert isinstance(op, ops.Conv2d)
    assert measure.measure(device.context, TARGET, op, Choice("direct"), inf) == inf
    device.close()
