"""Every tile of Hopper's convolutions against the matrix product, where there is such a card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cuda import conv
from engine.backends.cuda.conv.algorithm import KeepingConv2d
from engine.backends.cuda.conv.sm90_base import Sm90Algorithm
from engine.backends.cuda.device import CudaDevice
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Constant, Tensor
from engine.plan.shapes import Shape, Window
from tests.backends.cuda.cards import open_hopper
from tests.backends.cuda.tiles_on_card import (
    PLANS,
    able,
    assert_near,
    check_against_the_matrix_product,
    plan_of,
    run,
)

Array = NDArray[Any]

pytestmark = pytest.mark.cuda

TILE = Window((2, 2), (2, 2))
TOLERANCE = {"float16": 4e-3, "tf32": 4e-3, "float32": 2e-5}


@pytest.fixture(scope="module")
def card() -> Iterator[CudaDevice]:
    with open_hopper() as device:
        yield device


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", PLANS)
def test_every_tile_agrees_with_the_matrix_product(
    card: CudaDevice, name: str, precision: str
) -> None:
    tiled = [
        each
        for each in able(card, name, precision)
        if isinstance(conv.ALGORITHMS[conv.Choice.parse(each).algorithm], Sm90Algorithm)
    ]
    assert tiled
    check_against_the_matrix_product(card, name, precision, tiled, TOLERANCE[precision])


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize(("channels", "side", "size"), [(64, 104, 3), (256, 26, 3), (256, 26, 1)])
def test_a_map_is_stored_besides_its_pool(
    card: CudaDevice, channels: int, side: int, size: int, precision: str
) -> None:
    plan = plan_of(channels, side, channels, size)
    out = plan.outputs[0]
    pool = ops.MaxPool(Tensor(1, Shape(channels, side // 2, side // 2)), out, TILE)
    plan = replace(plan, ops=(*plan.ops, pool), layers=(pool.out,), outputs=(out, pool.out))
    (op,) = card._fused(plan, 1, precision).plan.ops
    assert isinstance(op, KeepingConv2d)
    names = card.algorithms(plan, op, precision=precision)
    fused = [name for name in names if not conv.Choice.parse(name).unfused]
    assert len(fused) > 2
    images = np.random.default_rng(1).standard_normal((1, *plan.source.shape.sides), np.float32)

    def run_by(name: str) -> tuple[Array, Array]:
        with closing(card.compile(plan, precision=precision, algorithm=name, tune=False)) as made:
            whole, pooled = made.forward(images)
            return whole, pooled

    expected, _ = run_by("im2col_gemm")
    for name in fused:
        whole, pooled = run_by(name)
        assert_near(whole, expected, TOLERANCE[precision], name)
        cells = whole.reshape(channels, side // 2, 2, side // 2, 2)
        np.testing.assert_array_equal(pooled[0], cells.max(axis=(2, 4)), err_msg=name)


FIRST = {
    "7x7 two apart": plan_of(3, 230, 64, 7, stride=2),
    "3x3": plan_of(3, 300, 32, 3),
    "3x3 two apart": plan_of(3, 211, 32, 3, stride=2),
}


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("batch", [1, 5])
def test_a_first_layer_agrees_with_the_matrix_product(
    card: CudaDevice, name: str, batch: int
) -> None:
    """Behind it another layer: what comes last is of floats."""
    first = FIRST[name]
    filters, side = first.outputs[0].shape.channels, first.outputs[0].shape.height
    second = plan_of(filters, side, 64, 3)
    (before,), (behind,) = first.ops, second.ops
    assert isinstance(before, ops.Conv2d)
    assert isinstance(behind, ops.Conv2d)
    sums, out = Tensor(2, behind.out.shape), Tensor(1, behind.out.shape)
    last = replace(
        behind.cut(0).writing(sums),
        src=before.out,
        weight=replace(behind.weight, name="weight2"),
        bias=Constant("bias2", (64,)),
    ).then(ops.Activate(out, sums, behind.activation))
    constants = {f"{key}2": values for key, values in second.constants.items()}
    plan = Plan(
        first.source,
        (before, last),
        (last.out,),
        (last.out,),
        constants={**first.constants, **constants},
    )
    assert "sm90_rgb_stem" in card.algorithms(plan, before, batch=batch, precision="float16")
    images = np.random.default_rng(1).standard_normal((batch, *plan.source.shape.sides), np.float32)
    expected = run(card, plan, images, "float16", "im2col_gemm")
    got = run(card, plan, images, "float16", "sm90_rgb_stem")
    assert_near(got, expected, TOLERANCE["float16"], "sm90_rgb_stem")
