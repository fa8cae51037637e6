"""Every tile of the 8-bit convolutions on a card, against exact sums."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cuda import conv
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.backends.cuda.lower.memory_layout import lay_out_memory
from engine.backends.cuda.lower.weights import lay_out_weights
from engine.backends.cuda.ops.target import Target
from engine.plan.build import Plan
from tests.backends.cuda.test_int8_kernels import Problem, assert_right
from tests.backends.cuda.test_mma_kernels import convolution
from tests.devices import open_or_skip

Array = NDArray[Any]

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def card() -> Iterator[CudaDevice]:
    device = open_or_skip(lambda: CudaDevice(0))
    yield device
    device.close()


POINT = {"kernel": (1, 1), "padding": (0, 0, 0, 0)}
OPS = {
    "3x3": (convolution((64, 26, 26), 128, activation="leaky", has_residual=True), 16),
    "1x1": (convolution((256, 52, 52), 128, **POINT, activation="leaky"), 8),
    "few filters": (convolution((32, 64, 64), 32, activation="relu"), 8),
    "short slices": (convolution((16, 104, 104), 64, activation="linear"), 4),
    "stride 2": (convolution((64, 75, 75), 240, stride=(2, 2), activation="leaky"), 4),
    "mish": (convolution((144, 26, 26), 256, activation="mish", has_residual=True), 16),
    "small map": (convolution((512, 13, 13), 256, activation="leaky", has_residual=True), 1),
}


@pytest.mark.parametrize("writes", ["int8", "float16", "float32"])
@pytest.mark.parametrize("name", OPS)
def test_every_tile_agrees_with_exact_sums(card: CudaDevice, name: str, writes: str) -> None:
    op, rows = OPS[name]
    problem = Problem(op, rows, writes)
    facts = {"capability": card.card.capability, "multiprocessors": card.card.multiprocessors}
    target = problem.target(**facts)
    able = [each for each in conv.candidates(target, op) if not each.unfused]
    assert able
    with ThreadPoolExecutor() as pool:
        wanted = {conv.get(each).tile(target, op) for each in able} - {None}
        facts = target.capability, target.precision
        list(pool.map(lambda tile: compiler.source(tile, *facts).image(), wanted))
    expected = problem.values()
    for each in able:
        got = card._context.run(lambda each=each: run(card, target, problem, each))
        assert_right(problem, got, expected, str(each))


def run(card: CudaDevice, target: Target, problem: Problem, choice: conv.Choice) -> Array:
    op, context = problem.op, card._context
    plan = Plan(op.src, (op,), (), (), constants=problem.constants)
    lowered = lay_out_memory(Lowered(plan, target, (Step(op, choice),)))
    layout, weights = lowered.layout, lay_out_weights(lowered)
    block = context.driver.mem_alloc(layout.size + weights.size + layout.workspace)
    try:
        start = int(block)
        constants = start + layout.size
        for offset, values in weights.arrays:
            context.driver.memcpy_htod(constants + offset, values)
        places = layout.slices
        for tensor, values in problem.inputs.items():
            made = np.float16 if target.bytes_of(tensor) == 2 else np.float32
            stored = values if tensor in target.scales else values.astype(made)
            pixels = np.ascontiguousarray(stored.transpose(0, 2, 3, 1))
            context.driver.memcpy_htod(start + places[tensor].pointer, pixels)
        gpu = lowered.on(
            context,
            activations=start,
            workspace=constants + weights.size,
            arrays={key: constants + at for key, at in weights.offsets.items()},
        )
        lowered.steps[0].enqueue(gpu.of(op))
        context.stream.synchronize()
        kind = {1: np.int8, 2: np.float16, 4: np.float32}[target.bytes_of(op.out)]
        channels, height, width = op.out.shape.sides
        result = np.empty((target.rows(op.out), height, width, channels), kind)
        context.driver.memcpy_dtoh(result, start + places[op.out].pointer)
        return result.transpose(0, 3, 1, 2)
    finally:
        block.free()
