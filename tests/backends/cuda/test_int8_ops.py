"""Ops on int8 tensors, the kernels' own text run on the CPU, against the CPU's definitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from engine.backends import open_device
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.ops.target import Target
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import ConcatPart, Convert, Op, Tensor
from engine.plan.shapes import Shape, Window
from tests.backends.cuda.cards import CARDS, open_card

SRC = Shape(32, 6, 8)
A, B = Tensor(1, SRC), Tensor(2, SRC)


def concat() -> ops.Concat:
    out = Tensor(3, SRC.with_channels(48))
    return ops.Concat(out, (ConcatPart(A, 16, 16, 0), ConcatPart(B, 0, 32, 16)))


OPS: dict[str, Op] = {
    "max_pool": ops.MaxPool(Tensor(3, Shape(32, 3, 4)), A, Window((2, 2), (2, 2))),
    "max_pool_down": ops.MaxPool(Tensor(3, SRC), A, Window((5, 5), (1, 1), (2, 2, 2, 2))),
    "upsample": ops.Upsample(Tensor(3, Shape(32, 12, 16)), A, 2),
    "concat": concat(),
    "reorg": ops.Reorg(Tensor(3, Shape(128, 3, 4)), A, 2, SRC),
    "add": ops.Add(Tensor(3, SRC), (A, B), activation="leaky"),
    "nothing": Convert(Tensor(3, SRC), A),
}


def plan_of(op: Op) -> Plan:
    """A plan that converts its source to two int8 tensors, runs the op, and converts back."""
    source, out = Tensor(-1, SRC), Tensor(4, op.out.shape)
    before = (Convert(A, source), Convert(B, source))
    scales = {A: 0.02, B: 0.02, op.out: 0.02}
    if isinstance(op, ops.Add):
        scales |= {B: 0.03, op.out: 0.05}
    if isinstance(op, Convert):
        return Plan(source, (before[0], replace(op, out=out)), (out,), (out,), scales={A: 0.02})
    last = Convert(out, op.out)
    return Plan(source, (*before, op, last), (out,), (out,), scales=scales)


@pytest.fixture(scope="module", params=CARDS)
def card(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    with open_card(request.param) as device:
        yield device


@pytest.mark.parametrize("name", OPS)
def test_the_card_computes_what_the_cpu_computes(card: CudaDevice, name: str) -> None:
    plan = plan_of(OPS[name])
    values = np.random.default_rng(0).standard_normal((2, *SRC.sides), np.float32)
    halves = values.astype(np.float16).astype(np.float32)
    with closing(open_device("cpu:1")) as cpu, closing(cpu.compile(plan, batch=2)) as program:
        (expected,) = program.forward(halves)
    with closing(card.compile(plan, batch=2, precision="int8")) as program:
        (got,) = program.forward(halves)
        assert program.precision == "int8"
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)


def test_maps_are_halved_without_a_conversion(card: CudaDevice) -> None:
    source, half = Shape(16, 6, 8), Shape(64, 3, 4)
    src, a, b8, b, total, out8, out = (
        Tensor(number, half if number in (1, 4, 5, 6) else source) for number in range(7)
    )
    steps = (
        ops.Reorg(a, src, 2, source),
        Convert(b8, src),
        Convert(b, b8),
        ops.Add(total, (a, b), activation="relu"),
        Convert(out8, total),
        Convert(out, out8),
    )
    plan = Plan(src, steps, (out,), (out,), scales={b8: 0.02, out8: 0.04})
    target = Target(2, "float16", (9, 0), 132, scales=plan.scales)
    (add,) = (op for op in lowering.fuse(plan, target).plan.ops if isinstance(op, ops.Add))
    assert (add.sources, add.out) == ((a, b8), out8)
    values = np.random.default_rng(0).standard_normal((2, *source.sides), np.float32)
    halves = values.astype(np.float16).astype(np.float32)
    with closing(open_device("cpu:1")) as cpu, closing(cpu.compile(plan, batch=2)) as program:
        (expected,) = program.forward(halves)
    with closing(card.compile(plan, batch=2, precision="int8")) as program:
        (got,) = program.forward(halves)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)


def test_an_int8_output_is_returned_as_values(card: CudaDevice) -> None:
    plan = replace(plan_of(OPS["add"]), outputs=(OPS["add"].out,))
    values = np.ones((1, *SRC.sides), np.float32)
    with closing(card.compile(plan, precision="int8")) as program:
        (got,) = program.forward(values)
    np.testing.assert_allclose(got, 2.0, rtol=0.03)
