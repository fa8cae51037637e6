"""The side stream: which ops it runs, where their tensors lie, and equal results."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cuda import conv
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.lower.lowered import Step
from engine.backends.cuda.ops.target import Target
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Tensor
from engine.plan.shapes import Shape
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.passes.networks import Network

TWO_HEADS = Path(__file__).parents[3] / "cfg" / "yolov3-tiny.cfg"
HOPPER = Target(1, "float16", (9, 0), 132)


@lru_cache(maxsize=4)
def plan_of(path: Path = TWO_HEADS, size: int | None = None) -> Plan:
    sides = (size, size) if size else None
    network = graph.build(cfg.read(path), size=sides)
    return optimise(lower(network, random_weights.arrays(network)), CudaDevice.passes)


def side_steps(plan: Plan, target: Target) -> list[Step]:
    return [
        step for step in lowering.place(lowering.fuse(plan, target)).steps if step.is_on_side_stream
    ]


def test_the_way_to_a_first_detection_layer_runs_beside_the_rest() -> None:
    plan = plan_of()
    found = side_steps(plan, HOPPER)
    assert [step.op.out.shape.sides for step in found] == [(512, 13, 13), (255, 13, 13)]
    assert plan.ops[-1] not in [step.op for step in found]
    assert all(lowering.can_move(step, HOPPER) for step in found)


def test_what_needs_scratch_memory_runs_in_its_turn() -> None:
    assert not side_steps(plan_of(), replace(HOPPER, algorithm="im2col_gemm"))


def test_nothing_runs_beside_for_which_a_later_op_in_its_turn_would_not_wait() -> None:
    """A card's tuner may choose scratch memory for the last op of a way alone."""
    plan = plan_of()
    first, last = side_steps(plan, HOPPER)
    assert isinstance(last.op, Conv2d)
    slow = conv.Choice("sm90_splitk_64x64x4x3_split1", unfused=True)
    fused = lowering.fuse(plan, HOPPER)
    tuned = replace(fused.target, measured={conv.signature(fused.target, last.op): slow})
    steps = {step.op: step for step in lowering.place(replace(fused, target=tuned)).steps}
    assert steps[last.op].choice == slow
    assert lowering.can_move(steps[first.op], tuned)
    assert not any(step.is_on_side_stream for step in steps.values())


def test_maps_that_fill_the_card_run_in_their_turn() -> None:
    assert not side_steps(plan_of(), replace(HOPPER, batch=512))


@pytest.mark.slow
def test_a_network_with_one_way_out_has_nothing_beside() -> None:
    plan = plan_of(TWO_HEADS.with_name("resnet50.cfg"))
    assert not side_steps(plan, HOPPER)


def test_what_reads_a_state_runs_before_the_state_is_stored_anew() -> None:
    """One of three convolutions, with nothing between them, reads a state."""
    net = Network(channels=32, side=8)
    state = net.state(Shape(32, 8, 8))
    outs = [net.conv(src, 32) for src in (state, net.source, net.source)]
    net.store(state, net.source)
    plan = optimise(net.plan(*outs, net.activate(net.source)), CudaDevice.passes)
    beside = [step.op.out for step in side_steps(plan, HOPPER)]
    assert beside == outs[1:]


def test_what_is_used_beside_shares_memory_with_nothing_that_is_used_later() -> None:
    """It may be read or written at any time until the end of the run."""
    plan = plan_of()
    lowered = lowering.place(lowering.fuse(plan, HOPPER))
    slices = lowered.layout.slices

    def place(tensor: Tensor) -> tuple[int, int]:
        begin, pitch = slices[tensor].pointer, slices[tensor].pitch
        return begin, begin + tensor.shape.area * pitch * lowered.target.bytes_of(tensor)

    aside = {
        plan.root(tensor)
        for step in lowered.steps
        if step.is_on_side_stream
        for tensor in step.tensors
    }
    assert len(aside) == 3
    for tensor in aside:
        begin, end = place(tensor)
        is_alive = False
        for step in lowered.steps:
            used = {plan.root(each) for each in step.tensors}
            is_alive |= tensor in used
            for other in used - {tensor} if is_alive else ():
                first, last = place(other)
                assert last <= begin or end <= first, (tensor, other)


THREE_HEADS = TWO_HEADS.with_name("yolov7-tiny.cfg")
IMAGES = [np.random.default_rng(n).random((1, 3, 64, 64), np.float32) for n in range(3)]


def run_directly(device: HostDevice, plan: Plan, **options: Any) -> list[list[NDArray[Any]]]:
    with closing(device.compile(plan, algorithm="direct", **options)) as program:
        return [list(program.forward(each)) for each in IMAGES]


@lru_cache(maxsize=1)
def results_in_turn() -> list[list[NDArray[Any]]]:
    """Return the outputs of the network with all steps on one stream."""
    with pytest.MonkeyPatch.context() as patch, on_tape(HostDevice()) as device:
        patch.setattr(lowering, "can_move", lambda step, target: False)
        return run_directly(device, plan_of(THREE_HEADS, size=64))


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("seed", range(6))
def test_results_do_not_depend_on_what_may_run_beside(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Choose ops of a network with three outputs at random, as a tuner might."""
    plan = plan_of(THREE_HEADS, size=64)
    allowed = {op for op in plan.ops if np.random.default_rng((seed, op.out.index)).random() < 0.8}
    expected = results_in_turn()
    monkeypatch.setattr(lowering, "can_move", lambda step, target: step.op in allowed)
    with on_tape(HostDevice()) as device:
        got = run_directly(device, plan)
    for one, other in zip(expected, got, strict=True):
        for first, second in zip(one, other, strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("may_end_beside", [False, True])
@pytest.mark.parametrize("is_recorded", [False, True])
def test_results_are_those_of_one_op_after_the_other(
    monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool, may_end_beside: bool
) -> None:
    """The host's streams do what they are given as late as they may: a wait forgotten shows."""
    plan = plan_of(size=64)
    first, _ = side_steps(plan, HOPPER)
    with on_tape(HostDevice()) as device:
        expected = run_directly(device, plan, graph=is_recorded)
        waiting = set()
        monkeypatch.setattr(
            lowering, "can_move", lambda step, _: may_end_beside or step.op == first.op
        )
        calls, wait_for = device.context.driver_api, device.context.driver_api.wait_for
        monkeypatch.setattr(
            calls, "wait_for", lambda stream, event: (waiting.add(stream), wait_for(stream, event))
        )
        got = run_directly(device, plan, graph=is_recorded)
    both = {device.context.stream.handle, device.context.side_stream.handle}
    assert waiting == (both if may_end_beside else set())
    for one, other in zip(expected, got, strict=True):
        for first, second in zip(one, other, strict=True):
            np.testing.assert_array_equal(first, second)
