"""Convolutions that pool a map which other ops read: which do, and where their tensors lie."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.conv.algorithm import KeepingConv2d
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import fusion, lowering
from engine.backends.cuda.ops.target import Target
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.plan.build import Plan
from engine.plan.ops import MaxPool
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.test_program import counter_plan

CARD = Target(2, "float16", (9, 0), 132)
LAYER = "[convolutional]\nfilters={}\nsize=3\npad=1\nactivation={}\n"
POOL = "[maxpool]\nsize=2\nstride=2\n"


def plan_of(
    activation: str = "leaky",
    *,
    sides: tuple[int, int] = (16, 24),
    pool: str = POOL,
    keeps: bool = True,
) -> Plan:
    """A pool of a map that is an output as well, if all layers are kept."""
    height, width = sides
    text = f"[net]\nheight={height}\nwidth={width}\nchannels=3\n"
    text += LAYER.format(32, "leaky") + LAYER.format(48, activation) + pool
    network = graph.build(cfg.parse(text + LAYER.format(24, "leaky")))
    plan = lower(network, random_weights.arrays(network))
    return optimise(plan.keeping_layers() if keeps else plan, CudaDevice.passes)


def kinds(plan: Plan, target: Target = CARD) -> list[str]:
    return [type(op).__name__ for op in lowering.fuse(plan, target).plan.ops]


def test_a_convolution_pools_a_map_that_is_read_elsewhere() -> None:
    plan = plan_of()
    lowered = lowering.place(lowering.fuse(plan, CARD))
    (op,) = (each for each in lowered.plan.ops if isinstance(each, KeepingConv2d))
    conv, pool = plan.ops[1:3]
    assert (op.kept, op.out) == (conv.out, pool.out)
    assert not any(isinstance(each, MaxPool) for each in lowered.plan.ops)
    slices = lowered.layout.slices
    used = [slices[each].pointer for each in (op.src, op.kept, op.out)]
    assert len(set(used)) == 3


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({"sides": (15, 24)}, {}),
        ({"activation": "mish"}, {}),  # the largest value is not that of the largest sum
        ({"pool": POOL.replace("stride=2", "stride=1")}, {}),
        ({}, {"capability": (8, 9)}),
        ({}, {"algorithm": "im2col_gemm"}),
    ],
    ids=str,
)
def test_other_pools_stay_kernels_of_their_own(
    options: dict[str, Any], change: dict[str, Any]
) -> None:
    lowered = lowering.place(lowering.fuse(plan_of(**options), replace(CARD, **change)))
    fused = [
        step.op
        for step in lowered.steps
        if isinstance(step.op, KeepingConv2d) and step.choice and not step.choice.unfused
    ]
    assert not fused


def test_a_map_that_only_the_pool_reads_is_not_stored() -> None:
    assert "KeepingConv2d" not in kinds(plan_of(keeps=False))


def test_all_stores_of_a_state_stay() -> None:
    plan = counter_plan(steps=3)
    assert lowering.fuse(plan, replace(CARD, precision="float32")).plan.ops == plan.ops


@needs_gxx
def test_by_two_kernels_the_results_are_those_of_two_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a card whose tuner finds another algorithm, and a pool after it, faster."""
    plan = plan_of()
    images = np.random.default_rng(1).random((2, *plan.source.shape.sides), np.float32)

    def outputs() -> tuple[bool, np.ndarray[Any, Any]]:
        with on_tape(HostDevice()) as device, closing(device.compile(plan, batch=2)) as program:
            is_kept = any(isinstance(op, KeepingConv2d) for op in program.plan.ops)
            return is_kept, np.concatenate([each.ravel() for each in program.forward(images)])

    monkeypatch.setattr(fusion, "_is_fusible", lambda *_: True)
    results = dict([outputs()])
    monkeypatch.setattr(fusion, "_is_fusible", lambda *_: False)
    results |= dict([outputs()])
    np.testing.assert_array_equal(results[True], results[False])
