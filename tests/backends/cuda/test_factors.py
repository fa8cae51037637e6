"""Convolutions that multiply a map by factors where they read it: which do, and that they agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends import open_device
from engine.backends.cuda import conv
from engine.backends.cuda.conv.algorithm import ScaledConv2d
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import fusion, lowering
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.lower.memory_layout import find_misaligned
from engine.backends.cuda.ops.target import Target
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.plan.build import Plan
from tests.backends.cuda.cards import CARDS, open_card
from tests.lanes import slow_except

Array = NDArray[Any]

CARD = Target(2, "float16", (9, 0), 132)
PRECISIONS = ("float32", "tf32", "float16")
MEANS = "[avgpool]\n[scale_channels]\nfrom=-2\n"
GATE = """
[avgpool]
[convolutional]
filters=4
activation=relu
[convolutional]
filters={channels}
activation=logistic
[scale_channels]
from=-4
"""
PROJECTION = "[convolutional]\nfilters=24\n"


def plan_of(
    behind: str = PROJECTION,
    *,
    before: str = MEANS,
    channels: int = 32,
    side: int = 13,
    passes: tuple[str, ...] = CudaDevice.passes,
) -> Plan:
    text = (
        f"[net]\nheight={side}\nwidth={side}\nchannels=8\n"
        f"[convolutional]\nfilters={channels}\nactivation=leaky\n"
    ) + (before + behind).format(channels=channels)
    network = graph.build(cfg.parse(text))
    return optimise(lower(network, random_weights.arrays(network)), passes)


def kinds(plan: Plan) -> list[str]:
    return [type(op).__name__ for op in plan.ops]


def fold(plan: Plan, target: Target) -> Plan:
    return fusion.fold_factors(Lowered(plan, target)).plan


def folded(plan: Plan, target: Target = CARD) -> bool:
    aligned = find_misaligned(Lowered(plan, target))
    misaligned = target.misaligned | aligned.target.misaligned
    return "ScaledConv2d" in kinds(fold(plan, replace(target, misaligned=misaligned)))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_convolution_takes_the_product_before_it(precision: str) -> None:
    plan, target = plan_of(), replace(CARD, precision=precision)
    *others, multiply, op = plan.ops
    *same, made = fold(plan, target).ops
    assert same == others
    assert isinstance(made, ScaledConv2d)
    assert made.multiply == replace(multiply, out=made.multiply.out)
    assert made.after_multiply == replace(op, src=made.multiply.out)
    assert made.reads[:1] == (multiply.src,)
    assert multiply.factor in made.reads


def test_a_plan_without_products_stays_as_it_is() -> None:
    plan = plan_of(before="")
    assert fold(plan, CARD) == plan


@pytest.mark.parametrize(
    "behind",
    [
        "[convolutional]\nfilters=24\nsize=3\npad=1\n",
        "[convolutional]\nfilters=24\nstride=2\n",
        "[convolutional]\nfilters=32\ngroups=2\n",
        "[activation]\nactivation=mish\n" + PROJECTION,
        PROJECTION
        + "[route]\nlayers=-2\n[convolutional]\nfilters=24\nsize=3\npad=1\n"
        + "[shortcut]\nfrom=-3\n",
        PROJECTION + "[route]\nlayers=-1,-2\n",
    ],
    ids=["3x3", "stride", "groups", "activation", "two_readers", "concatenation"],
)
def test_what_does_not_fit_stays_apart(behind: str) -> None:
    assert not folded(plan_of(behind))


def test_what_a_program_hands_back_is_stored() -> None:
    plan = plan_of()
    product = plan.ops[-1].reads[0]
    assert not folded(replace(plan, outputs=(*plan.outputs, product)))


def test_what_no_algorithm_knows_stays_apart() -> None:
    assert not folded(plan_of(channels=30))
    assert not folded(plan_of(), replace(CARD, capability=(7, 0)))
    plan = plan_of()
    source = plan.ops[-2].reads[0]
    assert not folded(plan, replace(CARD, misaligned=frozenset({source})))
    assert not folded(plan, replace(CARD, floats=frozenset({source})))


def test_a_small_map_is_scaled_by_its_gate() -> None:
    plan = plan_of(before=GATE)
    assert not folded(plan)
    assert folded(plan, replace(CARD, batch=256))


def test_few_algorithms_multiply_by_themselves_and_the_others_apart() -> None:
    plan = fold(plan_of(), CARD)
    op = plan.ops[-1]
    assert isinstance(op, ScaledConv2d)
    choices = conv.candidates(CARD, op)
    fused = {each for each in choices if not each.unfused}
    names = [each.algorithm for each in fused]
    assert {name.rsplit("_", 2 if "split" in name else 1)[0] for name in names} == {
        "few_channels",
        "implicit_gemm",
    }
    alone = conv.candidates(CARD, op.after_multiply)
    assert {each._replace(unfused=True) for each in alone} <= {*choices}
    assert conv.choose(CARD, op) in fused
    forced = replace(CARD, algorithm="direct")
    assert conv.choose(forced, op) == conv.Choice("direct", unfused=True)
    assert conv.signature(CARD, op) != conv.signature(CARD, op.after_multiply)


@pytest.mark.parametrize("channels", [16, 32, 96, 192])
@pytest.mark.parametrize("filters", [8, 24, 96])
def test_what_is_read_and_what_is_written_share_no_memory(channels: int, filters: int) -> None:
    """The arena would have the map end with the product, and what comes next begin there."""
    unfolded = plan_of(
        f"[convolutional]\nfilters={filters}\n[convolutional]\nfilters=8\n", channels=channels
    )
    lowered = lowering.place(lowering.fuse(unfolded, CARD))
    (op,) = (op for op in lowered.plan.ops if isinstance(op, ScaledConv2d))
    slices = lowered.layout.slices
    ends = {
        each: (slices[each].pointer, slices[each].pointer + 4 * each.shape.size)
        for each in (op.src, op.factor, op.out)
    }
    for (start, end), (first, last) in combinations(ends.values(), 2):
        assert end <= first or last <= start


@pytest.fixture(scope="module", params=CARDS)
def card(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    with open_card(request.param) as device:
        yield device


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("channels", "side"), [(16, 3), (32, 8), (144, 13), (192, 9)])
@pytest.mark.parametrize("batch", slow_except([7], [1, 7]))
@pytest.mark.parametrize(
    "kernel", slow_except(["implicit_gemm"], ["few_channels", "implicit_gemm"])
)
def test_results_are_those_of_a_product_that_is_stored(
    card: CudaDevice,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    channels: int,
    side: int,
    batch: int,
    kernel: str,
) -> None:
    """To the bit. Where a card has no matrix units every algorithm runs apart from the product."""
    behind = PROJECTION * 2
    plan = plan_of(behind, channels=channels, side=side)
    images = np.random.default_rng(1).random((batch, *plan.source.shape.sides), np.float32)
    mma = f"implicit_gemm_64x32x{4 if precision == 'float32' else 6}_split1"
    algorithm = mma if kernel == "implicit_gemm" else "few_channels_32"
    if card.card.capability < (7, 5):
        monkeypatch.setattr(fusion, "_is_fusible", lambda target, op: True)
        algorithm = "pointwise"
    options: Any = {"batch": batch, "precision": precision, "algorithm": algorithm}
    results = []
    unfolded = tuple(each for each in lowering.FUSION if each is not fusion.fold_factors)
    for passes in (lowering.FUSION, unfolded):
        monkeypatch.setattr(lowering, "FUSION", passes)
        with closing(card.compile(plan, **options)) as program:
            assert ("Multiply" in kinds(program.plan)) == bool(results)
            results += program.forward(images)
    np.testing.assert_array_equal(*results)
    with closing(open_device("cpu").compile(plan, batch=batch)) as cpu:
        (expected,) = cpu.forward(images)
    error = np.sqrt(np.square(results[0] - expected).mean() / np.square(expected).mean())
    assert error <= (2e-6 if precision == "float32" else 3e-3)
