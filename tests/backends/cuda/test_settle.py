"""With which algorithms a whole network runs, where times are made up or programs are real."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic

import numpy as np
import pytest

from engine.backends.cuda import conv
from engine.backends.cuda import device as device_module
from engine.backends.cuda.conv import Choice
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.lower.lowered import Decoder, Lowered, Step
from engine.backends.cuda.ops.target import Target
from engine.backends.cuda.runtime import trials
from engine.backends.cuda.runtime.trials import Trials
from engine.backends.cuda.tune import tune_layers, tune_network
from engine.backends.cuda.tune.tune_network import Progress
from engine.errors import DeviceError
from engine.plan import ops
from engine.plan.build import Plan
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.cuda.test_tune import Clock, network

TARGET = Target(2, "float32", (7, 5), 4)
LONG = 3600.0

Takes = Callable[[Mapping[str, Choice]], float]


class MadeUp:
    """Networks that take what `takes` says of their choices, a card refuses those below zero.

    Notes those that were made.
    """

    def __init__(self, takes: Takes) -> None:
        self._takes = takes
        self.made: list[dict[str, Choice]] = []
        self.open = 0

    def __call__(self, choices: Mapping[str, Choice]) -> tune_network.Trial | None:
        self.made.append(dict(choices))
        taken = self._takes(choices)
        if taken == inf:
            return None
        self.open += 1
        outer = self

        class Trial:
            def times(self, runs: int) -> list[float]:
                if taken < 0:
                    raise DeviceError("cuda: invalid argument")
                return [taken] * runs

            def close(self) -> None:
                outer.open -= 1

        return Trial()


def settled(
    takes: Takes, near: Mapping[str, list[Choice]], *, seconds: float = LONG
) -> tuple[Progress, MadeUp]:
    progress = Progress({name: ways[0] for name, ways in near.items()}, list(near))
    made = MadeUp(takes)
    tune_network.tune_network(progress, near, made, monotonic() + seconds)
    assert made.open == 0
    return progress, made


A, B, C, D = map(Choice, "abcd")
NEAR = {"one": [A, B], "two": [A, B, C]}


def test_what_is_fastest_in_the_network_is_chosen_though_it_is_not_so_alone() -> None:
    progress, _ = settled(lambda choices: 2.0 - (choices["two"] == C), NEAR)
    assert progress.choices == {"one": A, "two": C}
    assert not progress.left


def test_what_runs_stays_unless_another_is_clearly_faster() -> None:
    progress, made = settled(lambda choices: 1.0 - 0.001 * (choices["one"] == B), NEAR)
    assert progress.choices == {"one": A, "two": A}
    assert len(made.made) == 1 + 1 + 2  # as it was, and each other way once


def test_a_change_lets_others_be_tried_again() -> None:
    """`one` is better as b only beside `two` as b, which comes after it."""

    def takes(choices: Mapping[str, Choice]) -> float:
        pair = choices["one"], choices["two"]
        return {(A, B): 0.9, (B, B): 0.8}.get(pair, 1.0)

    progress, _ = settled(takes, NEAR)
    assert progress.choices == {"one": B, "two": B}
    assert progress.passes > 1


def test_what_is_hopeless_is_tried_once() -> None:
    def takes(choices: Mapping[str, Choice]) -> float:
        return 1.0 + (choices["two"] == B) * 0.02 - (choices["one"] == B) * 0.5

    progress, made = settled(takes, NEAR)
    assert progress.passes == 2
    assert sum(each["two"] == B for each in made.made) == 1
    assert sum(each["two"] == C for each in made.made) == 2


def test_passes_come_to_an_end() -> None:
    """Where clocks run faster and faster everything seems to be better than before."""
    runs = iter(range(1, 10_000))
    progress, _ = settled(lambda choices: 1 / next(runs), NEAR)
    assert progress.passes == tune_network.MOST_PASSES
    assert not progress.left


def test_what_finds_no_memory_is_left_out() -> None:
    progress, _ = settled(lambda choices: inf if choices["two"] == B else 1.0, NEAR)
    assert progress.choices == {"one": A, "two": A}
    assert not progress.left
    progress, made = settled(lambda choices: inf, NEAR)
    assert len(made.made) == 1
    assert progress.left == list(NEAR)


def test_what_the_card_refuses_is_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    progress, made = settled(lambda choices: -1.0 if choices["two"] == B else 1.0, NEAR)
    assert progress.choices == {"one": A, "two": A}
    assert progress.hopeless["two"] == [B]
    assert len(made.made) == 1 + 1 + 2  # a failure does not end the search
    assert "left out: cuda: invalid argument" in caplog.text


def test_without_time_nothing_changes_and_the_rest_is_left() -> None:
    progress, made = settled(lambda choices: 1.0 - (choices["one"] == B) / 2, NEAR, seconds=-1)
    assert progress.choices == {"one": A, "two": A}
    assert progress.left == ["one", "two"]
    assert len(made.made) == 1


def test_it_goes_on_where_it_was() -> None:
    progress = Progress({"one": B, "two": A}, ["two"])
    made = MadeUp(lambda choices: 1.0)
    tune_network.tune_network(progress, NEAR, made, monotonic() + LONG)
    assert [each["one"] for each in made.made] == [B] * 3
    assert not progress.left


def test_of_those_timed_alone_the_near_ones_are_worth_a_try() -> None:
    assert tune_network.near({A: 0.013, B: 0.01, C: 0.02, D: inf}) == [B, A]
    assert tune_network.near({A: 0.0011, B: 0.001, C: 0.0016}) == [B, A, C]
    assert tune_network.near({A: inf}) == []
    assert tune_network.near({}) == []
    assert len(tune_network.near({str(number): 1.0 for number in range(20)})) < 10


# ---------------------------------------------------------------- programs


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINE_CACHE", str(tmp_path))
    monkeypatch.setenv("ENGINE_TUNE", "600")
    return tmp_path


@pytest.fixture
def taped() -> Iterator[HostDevice]:
    with on_tape(HostDevice(runs_kernels=False)) as device:
        yield device


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Choice]]:
    """The choices of the trials made; the network with all of its layers as `direct` wins."""
    made: list[dict[str, Choice]] = []

    class Trial:
        def __init__(self, choices: Mapping[str, Choice]) -> None:
            self._taken = 1.0 / (1 + sum(choice == Choice("direct") for choice in choices.values()))

        def times(self, runs: int) -> list[float]:
            return [self._taken] * runs

        def close(self) -> None: ...

    def make(self: Trials, choices: Mapping[str, Choice]) -> Trial:
        made.append(dict(choices))
        return Trial(choices)

    monkeypatch.setattr(Trials, "make", make)
    monkeypatch.setattr(tune_layers, "measure", Clock(tiled=0.9, direct=0.95))
    return made


def run_by(device: HostDevice, plan: Plan, **options: object) -> list[str]:
    """The algorithms of the plan's layers in a program compiled with the tuner."""
    program = device.compile(plan, batch=2, tune=True, **options)
    images = np.zeros((2, *plan.source.shape.sides), np.float32)
    names = [each.algorithm for each in program.profile(images, repeats=1)]
    program.close()
    return names


def test_a_network_runs_as_it_is_fastest_as_a_whole(
    taped: HostDevice, faster: list[dict[str, Choice]]
) -> None:
    plan = network(8, 16)
    assert run_by(taped, plan) == ["direct", "direct"]
    assert set(taped.measured.values()) == {Choice("tiled")}
    first, _ = plan.ops
    assert isinstance(first, ops.Conv2d)
    chosen, _ = taped.algorithm_times(plan, first, batch=2)
    assert chosen == "direct"


def test_another_network_of_the_same_convolutions_has_choices_of_its_own(
    taped: HostDevice, faster: list[dict[str, Choice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_by(taped, network(8, 16))
    faster.clear()
    monkeypatch.delenv("ENGINE_TUNE")
    other = network(8)
    assert run_by(taped, other) == ["tiled"]
    assert not faster  # its convolution is known, and the usual time is for new ones
    assert run_by(taped, network(8, 16)) == ["direct", "direct"]


def test_who_gives_more_than_the_usual_time_lets_a_known_network_be_tried(
    taped: HostDevice, faster: list[dict[str, Choice]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_by(taped, network(8, 16))
    monkeypatch.delenv("ENGINE_TUNE")
    assert run_by(taped, network(8)) == ["tiled"]
    monkeypatch.setenv("ENGINE_TUNE", str(int(tune_layers.SECONDS) + 1))
    assert run_by(taped, network(8)) == ["direct"]
    faster.clear()
    assert run_by(taped, network(8)) == ["direct"]
    assert not faster  # nothing was left


@pytest.mark.parametrize(
    ("given", "measuring", "least", "most"),
    [("", 2.0, 0, 2), ("", 7.0, 0, 3), ("", 11.0, None, None), ("100", 2.0, 90, 98)],
)
def test_of_the_usual_time_a_network_gets_no_more_than_measuring_took(
    taped: HostDevice, monkeypatch: pytest.MonkeyPatch, given: str, measuring: float, least, most
) -> None:
    now = [0.0]
    given_to_it: list[float] = []

    def measure(*arguments: object, **options: object) -> bool:
        now[0] += measuring
        return True

    def settle(self: object, fused: object, make: object, limit: float) -> None:
        given_to_it.append(limit)

    monkeypatch.setenv("ENGINE_TUNE", given)
    monkeypatch.setattr(tune_layers.Tuner, "tune", measure)
    monkeypatch.setattr(tune_layers.Tuner, "tune_network", settle)
    monkeypatch.setattr(device_module, "monotonic", lambda: now[0])
    taped.compile(network(8), tune=True).close()
    if most is None:
        assert not given_to_it
    else:
        assert least < given_to_it[0] <= most


def test_another_process_finds_what_was_settled(
    taped: HostDevice, faster: list[dict[str, Choice]]
) -> None:
    run_by(taped, network(8, 16))
    faster.clear()
    with on_tape(HostDevice(runs_kernels=False)) as later:
        assert run_by(later, network(8, 16)) == ["direct", "direct"]
    assert not faster


@pytest.mark.slow
def test_what_two_processes_settle_is_kept_together(
    taped: HostDevice, faster: list[dict[str, Choice]]
) -> None:
    other = HostDevice(runs_kernels=False)
    other.compile(network(24), batch=2, tune=True).close()
    run_by(taped, network(8, 16))
    other.compile(network(32), batch=2, tune=True).close()
    with on_tape(HostDevice(runs_kernels=False)) as third:
        for filters in ((8, 16), (24,), (32,)):
            assert run_by(third, network(*filters)) == ["direct"] * len(filters)
    other.close()


@pytest.mark.parametrize("options", [{"graph": False}, {"algorithm": "im2col_gemm"}])
def test_only_what_runs_as_a_graph_and_is_free_to_choose_is_tried(
    taped: HostDevice, faster: list[dict[str, Choice]], options: dict[str, object]
) -> None:
    run_by(taped, network(8, 16), **options)
    assert not faster


@needs_gxx
def test_a_trial_times_a_program_of_those_choices_and_leaves_nothing(host: HostDevice) -> None:
    plan = network(8, 16)
    target = replace(TARGET, capability=host.card.capability)
    signatures = [conv.signature(target, op) for op in plan.ops]
    with on_tape(host):
        made = Trials(host.context, lowering.fuse(plan, target))
        for name in ("tiled", "direct", "tiled"):
            trial = made.make(dict.fromkeys(signatures, Choice(name)))
            assert trial is not None
            host.context.launched.clear()
            assert len(trial.times(3)) == 3
            assert any(kernel.startswith(name) for kernel in host.context.launched)
            trial.close()
            assert not host.context.driver.live


def test_an_op_is_prepared_once_for_the_trials_that_have_it_alike(
    taped: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[object] = []
    prepare = trials.weights.prepare

    def spied(lowered: Lowered, step: Step | Decoder) -> object:
        prepared.append(step)
        return prepare(lowered, step)

    monkeypatch.setattr(trials.weights, "prepare", spied)
    plan = network(8, 16)
    first, second = (conv.signature(TARGET, op) for op in plan.ops)
    made = Trials(taped.context, lowering.fuse(plan, TARGET))
    tiled, direct = Choice("tiled"), Choice("direct")
    for choices in ({first: tiled, second: tiled}, {first: tiled, second: direct}) * 2:
        trial = made.make(choices)
        assert trial is not None
        trial.close()
    assert len(prepared) == 3


def test_a_trial_that_finds_no_memory_is_none(
    taped: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise DeviceError("cuda: out of memory")

    fused = lowering.fuse(network(8), TARGET)
    with monkeypatch.context() as patch:
        patch.setattr(trials.CudaProgram, "repeating", refuse)
        assert Trials(taped.context, fused).make({}) is None
        assert not taped.context.driver.live
    monkeypatch.setattr(trials, "CudaProgram", refuse)
    assert Trials(taped.context, fused).make({}) is None
