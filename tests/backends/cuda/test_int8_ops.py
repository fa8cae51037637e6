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
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.passes.quantise import LayerRanges, quantise
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import ConcatPart, Convert, Op, Tensor
from engine.plan.shapes import Shape, Window
from tests.backends.cuda.cards import CARDS, open_card
from tests.backends.cuda.host import needs_gxx
from tests.property.on_cards import open_host

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


@pytest.mark.slow
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


FLOAT_FACTORS = """[net]
width=16
height=16
channels=3
[convolutional]
filters=16
size=3
pad=1
activation=relu
[avgpool]
[connected]
output=16
activation=logistic
[scale_channels]
from=-3
[convolutional]
filters=32
size=1
activation=leaky
[convolutional]
filters=16
size=3
pad=1
activation=leaky
[connected]
output=52
activation=linear
[detection]
classes=3
coords=4
rescore=1
side=2
num=2
"""


@needs_gxx
@pytest.mark.parametrize("algorithm", ["few_channels_32", "few_channels_32+unfused"])
def test_factors_that_stay_float_are_multiplied_in_float32(algorithm: str) -> None:
    """The head is computed in float32, and so is what comes before it."""
    network = graph.build(cfg.parse(FLOAT_FACTORS))
    plan = optimise(lower(network, random_weights.arrays(network)), CudaDevice.passes)
    pictures = np.random.default_rng(0).random((1, 3, 16, 16), np.float32)
    with closing(open_device("cpu:1")) as cpu, open_host((8, 6)) as card:
        whole = plan.keeping_layers()
        values = dict(zip(whole.outputs, cpu.compile(whole).forward(pictures), strict=True))
        largest = {n: float(np.abs(values[each]).max()) for n, each in enumerate(plan.layers)}
        plan = quantise(plan, LayerRanges(largest))
        expected = cpu.compile(plan, precision="int8").forward(pictures)
        found = card.compile(plan, precision="int8", algorithm=algorithm).forward(pictures)
    np.testing.assert_allclose(found[-1], expected[-1], rtol=1e-4, atol=1e-5)
