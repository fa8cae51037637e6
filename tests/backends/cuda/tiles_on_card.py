"""Convolutions large enough for every tile, run on a card by the algorithms that are named."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.backends.cuda import conv
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import compiler
from engine.plan.build import Plan
from engine.plan.ops import Constant, Conv2d, Tensor
from engine.plan.shapes import Shape, Window
from tests.tails import conv2d

Array = NDArray[Any]


def plan_of(
    channels: int,
    side: int,
    filters: int,
    size: int,
    *,
    has_residual: bool = False,
    last: str = "linear",
    stride: int = 1,
    classes: int | None = None,
    is_pooled: bool = False,
) -> Plan:
    random = np.random.default_rng(0)
    out_side = (side - 1) // stride + 1
    src = Tensor(-1, Shape(channels, side, side))
    weight = random.standard_normal((filters, channels, size, size), np.float32)
    constants = {
        "weight": weight / np.float32(np.sqrt(weight[0].size)),
        "bias": random.standard_normal(filters, np.float32),
    }
    conv = conv2d(
        Tensor(0, Shape(filters, out_side, out_side)),
        src,
        Constant("weight", weight.shape),
        Constant("bias", (filters,)),
        stride=(stride, stride),
        padding=(size // 2,) * 4,
        activation="leaky" if classes is None else "linear",
        residual=src if has_residual else None,
        last_activation=last,
        pool=Window((2, 2), (2, 2)) if is_pooled else None,
        yolo=classes and {"anchors": 3, "classes": classes, "scale_x_y": 1.05},
    )
    return Plan(src, (conv,), (conv.out,), (conv.out,), constants=constants)


# Most tiles of the first sum one slice, of the second two: there a warp may be a whole turn behind.
PLANS = {
    "one slice": (plan_of(64, 104, 64, 1), 8),
    "two slices": (plan_of(128, 104, 64, 1), 8),
    "residual": (plan_of(64, 40, 64, 3, has_residual=True), 16),
    "activation behind it": (plan_of(64, 40, 64, 3, has_residual=True, last="mish"), 16),
    "few filters left": (plan_of(64, 52, 90, 3), 4),
    "a residual of quarters": (plan_of(64, 40, 128, 3, has_residual=True, stride=2), 16),
    "quarters of one picture": (plan_of(512, 32, 512, 1, has_residual=True, stride=2), 1),
    "short slices": (plan_of(32, 64, 64, 3), 4),
    "patches": (plan_of(32, 104, 32, 3), 8),
    "patches with a residual": (plan_of(64, 104, 64, 3, has_residual=True), 8),
    "patches for two tiles of filters": (plan_of(64, 104, 128, 3), 8),
    "patches that stand out": (plan_of(64, 100, 72, 3), 8),
    "patches of two slices": (plan_of(96, 72, 64, 3), 16),
    "patches of many taps": (plan_of(16, 104, 64, 5), 8),
    "pixels as columns": (plan_of(64, 160, 64, 3, has_residual=True), 8),
    "pixels as columns that stand out": (plan_of(32, 100, 72, 3, last="mish"), 8),
    "pixels as columns, two apart": (plan_of(32, 320, 64, 3, stride=2), 8),
    "pixels as columns, two apart, of slices": (plan_of(64, 319, 64, 3, stride=2), 8),
    "patches of one pixel": (plan_of(64, 104, 64, 1, has_residual=True, last="relu"), 8),
    "patches of one pixel, of slices": (plan_of(256, 64, 256, 1, has_residual=True), 8),
    "tiles that go round": (plan_of(128, 52, 256, 3), 16),
    "tiles that go round with a residual": (plan_of(256, 26, 256, 3, has_residual=True), 48),
    "tiles that go round and stand out": (plan_of(32, 75, 228, 3, last="mish"), 8),
    "tiles that go round once, two apart": (plan_of(64, 103, 512, 3, stride=2), 4),
    "small map": (plan_of(256, 13, 256, 3), 1),
    "detection layer": (plan_of(256, 13, 255, 1, classes=80), 2),
    "pool": (plan_of(16, 208, 32, 3, is_pooled=True), 1),
    "pool of a small map": (plan_of(256, 26, 256, 3, is_pooled=True), 2),
    "pool that leaves out a line": (plan_of(64, 53, 90, 3, is_pooled=True), 3),
}


def able(card: CudaDevice, name: str, precision: str) -> tuple[str, ...]:
    """The algorithms that can run one of PLANS."""
    plan, batch = PLANS[name]
    (op,) = plan.ops
    assert isinstance(op, Conv2d)
    return card.algorithms(plan, op, batch=batch, precision=precision)


def check_against_the_matrix_product(
    card: CudaDevice, name: str, precision: str, algorithms: Iterable[str], tolerance: float
) -> None:
    plan, batch = PLANS[name]
    compile_together(card, plan, algorithms, batch=batch, precision=precision)
    images = np.random.default_rng(1).standard_normal((batch, *plan.source.shape.sides), np.float32)
    expected = run(card, plan, images, precision, "im2col_gemm")
    for each in algorithms:
        assert_near(run(card, plan, images, precision, each), expected, tolerance, each)


def compile_together(
    card: CudaDevice, plan: Plan, algorithms: Iterable[str], *, batch: int, precision: str
) -> None:
    """Compile the tiles of the plan's last op in parallel."""
    op = plan.ops[-1]
    assert isinstance(op, Conv2d)
    target = card._fused(plan, batch, precision).target.of(op)
    wanted = {conv.get(conv.Choice.parse(name)).tile(target.of(op), op) for name in algorithms} - {
        None
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        facts = target.capability, target.precision
        list(pool.map(lambda tile: compiler.source(tile, *facts).image(), wanted))


def assert_near(got: Array, expected: Array, tolerance: float, name: str) -> None:
    """`tolerance` is a share of the largest value."""
    difference = float(np.abs(got - expected).max() / np.abs(expected).max())
    assert difference <= tolerance, f"{name}: {difference:.1e}"


def run(card: CudaDevice, plan: Plan, images: Array, precision: str, algorithm: str) -> Array:
    program = card.compile(
        plan, batch=len(images), precision=precision, algorithm=algorithm, tune=False
    )
    with closing(program):
        return program.forward(images)[0]
