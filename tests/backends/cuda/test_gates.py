"""What gates share with the ops around them: which of them do, and that results are the same."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends import open_device
from engine.backends.cuda.conv import depthwise
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.lower import lowering, squeeze_excite
from engine.backends.cuda.lower.launched import Launched, units_of
from engine.backends.cuda.lower.lowered import Step
from engine.backends.cuda.ops import squeeze_excite as gates
from engine.backends.cuda.ops.gpu import PartialSums
from engine.backends.cuda.ops.target import Target, most_shared_bytes
from engine.backends.cuda.runtime import device_program
from engine.darknet import cfg, graph, random_weights, weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import Plan
from tests.backends.cuda.host import compile_library, needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.lanes import slow_except

Array = NDArray[Any]

CARD = Target(1, "float16", (9, 0), 132)
ALGORITHMS = ("depthwise",)
TOLERANCE = {"float32": 2e-6, "tf32": 2e-6, "float16": 3e-3}
SQUEEZE = """
[avgpool]
[convolutional]
filters={hidden}
activation=swish
[convolutional]
filters={channels}
activation=logistic
[scale_channels]
from=-4
"""


def plan_of(
    size: int = 3,
    stride: int = 1,
    channels: int = 32,
    sides: str = "height=13\nwidth=11",
    hidden: int = 4,
) -> Plan:
    text = (
        f"[net]\n{sides}\nchannels={channels}\n"
        f"[convolutional]\nfilters={channels}\nactivation=leaky\n"
        f"[convolutional]\nfilters={channels}\ngroups={channels}\nsize={size}\nstride={stride}\n"
        "pad=1\nactivation=swish\n"
    ) + SQUEEZE.format(channels=channels, hidden=hidden)
    network = graph.build(cfg.parse(text))
    return optimise(lower(network, random_weights.arrays(network)), HostDevice.passes)


def pair_of(plan: Plan) -> tuple[ops.Op, ops.Op]:
    """The depthwise convolution and its gate."""
    _, op, gate, _ = plan.ops
    assert isinstance(op, ops.Conv2d)
    assert isinstance(gate, ops.Gate)
    return op, gate


def steps_of(plan: Plan, target: Target, misaligned: set[ops.Tensor] = frozenset()) -> list[Step]:
    fused = lowering.fuse(plan, target)
    target = replace(fused.target, misaligned=fused.target.misaligned | misaligned)
    return lowering.place(replace(fused, target=target)).steps


def sums_of(plan: Plan, target: Target, **options: Any) -> dict[ops.Op, PartialSums]:
    steps = steps_of(plan, target, **options)
    return {
        step.op: step.annotations.partial_sums for step in steps if step.annotations.partial_sums
    }


def scaled_by(plan: Plan, target: Target, **options: Any) -> dict[ops.Op, ops.Multiply]:
    steps = steps_of(plan, target, **options)
    return {step.op: step.annotations.multiply for step in steps if step.annotations.multiply}


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_convolution_and_its_gate_agree_on_the_pieces(
    precision: str, size: int, stride: int, algorithm: str
) -> None:
    plan = plan_of(size, stride)
    left = sums_of(plan, replace(CARD, precision=precision, algorithm=algorithm))
    op, gate = pair_of(plan)
    assert set(left) == {op, gate}
    assert left[op] == left[gate]
    assert left[op].gate == gate


def test_each_sums_for_itself_where_no_kernel_leaves_any() -> None:
    assert not sums_of(plan_of(7), CARD)
    assert not sums_of(plan_of(channels=30), CARD)
    plan = plan_of()
    assert not sums_of(plan, replace(CARD, algorithm="direct"))
    op, _ = pair_of(plan)
    assert not sums_of(plan, CARD, misaligned={op.out})


def test_nothing_may_run_between_that_could_take_the_memory() -> None:
    plan = plan_of()
    first, op, gate, last = plan.ops
    assert not sums_of(replace(plan, ops=(op, first, gate, last)), CARD)


@pytest.mark.parametrize("channels", [16, 96, 1152])
@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_gate_has_few_sums_to_read(channels: int, batch: int, algorithm: str) -> None:
    plan = plan_of(channels=channels, sides="height=104\nwidth=104")
    _, gate = pair_of(plan)
    left = sums_of(plan, replace(CARD, batch=batch, algorithm=algorithm))
    assert left[gate].floats <= depthwise.MOST_SQUEEZED


def test_a_gate_with_too_much_to_read_sums_for_itself() -> None:
    plan = plan_of(channels=1152, sides="height=104\nwidth=104", hidden=72)
    assert not sums_of(plan, CARD)
    assert sums_of(plan, replace(CARD, batch=64))


@pytest.mark.parametrize("precision", TOLERANCE)
def test_a_gate_scales_the_map_where_that_is_next(precision: str) -> None:
    plan = plan_of()
    target = replace(CARD, precision=precision)
    *_, gate, last = plan.ops
    assert scaled_by(plan, target) == {gate: last}
    assert not scaled_by(replace(plan, ops=(last, *plan.ops[:-1])), target)
    assert not scaled_by(plan_of(channels=30), target)
    assert not scaled_by(plan, replace(target, batch=1024))
    assert not scaled_by(plan, target, misaligned={last.out})


def elsewhere_of(stride: int) -> Plan:
    """A gate that sums up one map and scales the one before it."""
    text = (
        "[net]\nheight=12\nwidth=12\nchannels=16\n"
        "[convolutional]\nfilters=16\nactivation=leaky\n"
        f"[convolutional]\nfilters=16\nsize=3\nstride={stride}\npad=1\nactivation=leaky\n"
    ) + SQUEEZE.format(channels=16, hidden=4).replace("from=-4", "from=-5")
    network = graph.build(cfg.parse(text))
    return optimise(lower(network, random_weights.arrays(network)), HostDevice.passes)


def classifier_of(hidden: int, filters: int, *, arrays: Any = weights.initial) -> Plan:
    """The mean of a map and two dense layers, which a gate computes; of zeros unless drawn."""
    text = (
        "[net]\nheight=6\nwidth=6\nchannels=8\n[avgpool]\n"
        f"[convolutional]\nfilters={hidden}\nactivation=relu\n"
        f"[convolutional]\nfilters={filters}\nactivation=linear\n"
    )
    network = graph.build(cfg.parse(text))
    return optimise(lower(network, arrays(network)), HostDevice.passes)


CLASSIFIERS = [(1024, 21841), (4096, 21841), (9216, 1000), (8192, 8192), (20000, 10)]


@pytest.mark.parametrize("capability", [(7, 5), (8, 6), (9, 0)])
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(("hidden", "filters"), CLASSIFIERS)
def test_no_block_takes_more_shared_memory_than_the_card_has(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    precision: str,
    hidden: int,
    filters: int,
) -> None:
    taken: list[int] = []

    def launch(self: Launched, name: str, *_: Any, shared: int = 0, **__: Any) -> None:
        taken.append(shared)

    monkeypatch.setattr(Launched, "launch", launch)
    target = Target(64, precision, capability, 40)
    units_of(lowering.place(lowering.fuse(classifier_of(hidden, filters), target)))
    assert taken
    assert max(taken) <= most_shared_bytes(capability)


def test_what_no_block_can_hold_runs_as_layers() -> None:
    def kinds(hidden: int, capability: tuple[int, int]) -> list[type[ops.Op]]:
        target = Target(1, "float16", capability, 40)
        return [type(step.op) for step in steps_of(classifier_of(hidden, 16), target)]

    assert kinds(8192, (7, 5)) == [ops.Gate]
    assert kinds(8193, (7, 5)) == [ops.AveragePool, ops.Conv2d, ops.Conv2d]
    assert kinds(8193, (8, 6)) == [ops.Gate]


@needs_gxx
@pytest.mark.parametrize("kilobytes", [5, 1])  # for 1248 factors of a block, and for no gate
def test_results_do_not_depend_on_the_shared_memory(
    host: HostDevice, monkeypatch: pytest.MonkeyPatch, kilobytes: int
) -> None:
    plan = classifier_of(30, 1500, arrays=random_weights.arrays)
    images = np.random.default_rng(1).random((3, *plan.source.shape.sides), np.float32)
    with closing(host.compile(plan, batch=3)) as program:
        (expected,) = program.forward(images)
    monkeypatch.setattr(gates, "most_shared_bytes", lambda capability: kilobytes << 10)
    with closing(host.compile(plan, batch=3)) as program:
        (got,) = program.forward(images)
    np.testing.assert_allclose(got, expected, atol=2e-6)


@needs_gxx
def test_pieces_may_have_more_floats_than_an_int_counts() -> None:
    runner = 'extern "C" float* place(int piece, int hidden) { return piece_of(0, piece, hidden); }'
    text = "\n".join(['#include "host.h"', compiler._joined({}), runner])
    place = compile_library(text, ()).place
    place.restype = ctypes.c_void_p
    assert place(3, 7) == 3 * 8 * 4
    assert place(1 << 20, 8191) == (1 << 20) * 8192 * 4


@pytest.fixture(scope="module")
def host() -> Iterator[HostDevice]:
    with closing(HostDevice()) as device:
        yield device


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("algorithm", slow_except(ALGORITHMS[:1], ALGORITHMS))
@pytest.mark.parametrize(
    ("size", "stride", "channels", "hidden"),
    [
        *[(3, 1, 32, 4), (3, 2, 96, 7), (5, 1, 200, 33), (5, 2, 16, 1), (3, 1, 1152, 4)],
        *[(3, 1, 64, 64), (3, 1, 64, 65), (5, 2, 64, 300)],  # what a block keeps of the weights
    ],
)
def test_results_are_those_of_the_cpu(
    host: HostDevice,
    precision: str,
    algorithm: str,
    size: int,
    stride: int,
    channels: int,
    hidden: int,
) -> None:
    """For fewer pictures than there is room for, too: a picture's sums are its own."""
    plan = plan_of(size, stride, channels, hidden=hidden)
    images = np.random.default_rng(1).random((3, *plan.source.shape.sides), np.float32)
    with (
        closing(open_device("cpu").compile(plan, batch=3)) as cpu,
        closing(host.compile(plan, batch=3, precision=precision, algorithm=algorithm)) as program,
    ):
        (expected,) = cpu.forward(images)
        (got,) = program.forward(images)
        (alone,) = program.forward(images[2:])
    target = replace(CARD, batch=3, precision=precision, algorithm=algorithm)
    assert sums_of(plan, target)
    error = np.sqrt(np.square(got - expected).mean() / np.square(expected).mean())
    assert error <= TOLERANCE[precision]
    np.testing.assert_array_equal(alone[0], got[2])


@needs_gxx
@pytest.mark.parametrize(("stride", "scales"), [(1, True), (2, False)])
def test_the_map_that_is_scaled_may_be_larger_than_the_one_summed_up(
    host: HostDevice, stride: int, scales: bool
) -> None:
    plan = elsewhere_of(stride)
    assert bool(scaled_by(plan, CARD)) == scales
    images = np.random.default_rng(1).random((2, *plan.source.shape.sides), np.float32)
    with (
        closing(open_device("cpu").compile(plan, batch=2)) as cpu,
        closing(host.compile(plan, batch=2)) as program,
    ):
        (expected,), (got,) = cpu.forward(images), program.forward(images)
    np.testing.assert_allclose(got, expected, atol=2e-6)


@needs_gxx
def test_factors_that_are_their_own_map_are_multiplied_when_they_are_known(
    host: HostDevice,
) -> None:
    text = "[net]\nheight=1\nwidth=1\nchannels=16\n[convolutional]\nfilters=16\n"
    text += SQUEEZE.format(channels=16, hidden=4).replace("from=-4", "from=-1")
    network = graph.build(cfg.parse(text))
    plan = optimise(lower(network, random_weights.arrays(network)), HostDevice.passes)
    *_, gate, last = plan.ops
    assert isinstance(gate, ops.Gate)
    assert last.reads == (gate.out, gate.out)
    images = np.random.default_rng(1).random((2, 16, 1, 1), np.float32)
    with (
        closing(open_device("cpu").compile(plan, batch=2)) as cpu,
        closing(host.compile(plan, batch=2)) as program,
    ):
        (expected,), (got,) = cpu.forward(images), program.forward(images)
    np.testing.assert_allclose(got, expected, atol=2e-6)


@needs_gxx
@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_map_scaled_by_its_gate_is_the_same_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, precision: str, batch: int
) -> None:
    plan = plan_of(channels=72)
    images = np.random.default_rng(1).random((batch, *plan.source.shape.sides), np.float32)
    results = []
    with on_tape(HostDevice()) as device:
        for scales in (squeeze_excite.scales, lambda target, gate, op: False):
            monkeypatch.setattr(squeeze_excite, "scales", scales)
            with closing(device.compile(plan, batch=batch, precision=precision)) as program:
                results += program.forward(images)
    assert results[0].any()
    np.testing.assert_array_equal(*results)


@needs_gxx
def test_what_a_gate_does_as_well_takes_no_time_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_program, "_COPIES", 1)
    plan = plan_of(sides="height=3\nwidth=3")
    images = np.random.default_rng(1).random((1, *plan.source.shape.sides), np.float32)
    with on_tape(HostDevice()) as device, closing(device.compile(plan)) as program:
        *taken, scaling = (each.milliseconds for each in program.profile(images, repeats=1))
    assert all(each > 0 for each in taken)
    assert scaling == 0
