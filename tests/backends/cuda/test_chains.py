"""Two convolutions as one: where they are joined, and that results are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.lower import fusion, lowering
from engine.backends.cuda.ops.target import Target
from engine.backends.cuda.runtime import overflow
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import EngineError
from engine.passes import optimise
from engine.plan.build import Plan
from engine.plan.ops import Chain
from tests.backends.cuda.cards import open_hopper

Array = NDArray[Any]

CARD = Target(2, "float16", (9, 0), 132)
CONVOLUTION = "[convolutional]\nfilters={}\nsize=3\nstride={}\npad={}\nactivation={}\n"


def layer(filters: int, stride: int = 1, pad: int = 1, activation: str = "leaky") -> str:
    return CONVOLUTION.format(filters, stride, pad, activation)


FIRST, SECOND, REST = layer(32), layer(64, 2), layer(32) + layer(16)


def plan_of(
    text: str = FIRST + SECOND + REST, side: tuple[int, int] = (64, 64), *, keeps: bool = False
) -> Plan:
    height, width = side
    text = f"[net]\nheight={height}\nwidth={width}\nchannels=3\n" + text
    network = graph.build(cfg.parse(text))
    plan = lower(network, random_weights.arrays(network))
    return optimise(plan.keeping_layers() if keeps else plan, CudaDevice.passes)


def squeeze(
    *kinds: str, channels: int = 64, filters: int = 32, size: int = 3, origin: int = -3
) -> str:
    first, second = kinds or ("leaky", "leaky")
    return (
        f"[convolutional]\nfilters={filters}\nactivation={first}\n"
        f"[convolutional]\nfilters={channels}\nsize={size}\npad=1\nactivation={second}\n"
        f"[shortcut]\nfrom={origin}\n"
    )


def joined(plan: Plan, target: Target = CARD) -> int:
    return sum(isinstance(op, Chain) for op in lowering.fuse(plan, target).plan.ops)


def test_a_pictures_map_goes_no_further_than_the_second_convolution() -> None:
    plan = plan_of()
    first, second, *others = plan.ops
    lowered = lowering.place(lowering.fuse(plan, CARD))
    chain, *same = lowered.plan.ops
    assert isinstance(chain, Chain)
    assert chain.links == (first, second)
    assert same == others
    split = lowering.place(lowering.fuse(plan, replace(CARD, algorithm="direct")))
    assert first.out in split.layout.slices
    assert first.out not in lowered.layout.slices
    assert fusion.split_chains(lowered.plan) == plan


def test_blocks_that_squeeze_follow_one_another() -> None:
    plan = plan_of(FIRST + SECOND + squeeze() + squeeze("mish", "relu") + REST)
    lowered = lowering.place(lowering.fuse(plan, CARD))
    opening, first, second, *others = lowered.plan.ops
    assert [str(step.choice) for step in lowered.steps if isinstance(step.op, Chain)] == [
        *("sm90_fused_stem", "sm90_fused_bottleneck", "sm90_fused_bottleneck")
    ]
    assert first.reads == (opening.out, opening.out)
    assert second.reads == (first.out, first.out)
    assert tuple(others) == plan.ops[6:]
    assert fusion.split_chains(lowered.plan) == plan


def test_what_is_read_and_what_is_written_share_no_memory() -> None:
    lowered = lowering.place(lowering.fuse(plan_of(layer(64) + squeeze() * 3 + REST), CARD))
    slices = lowered.layout.slices
    for op in lowered.plan.ops:
        if isinstance(op, Chain):
            size = 2 * CARD.batch * op.out.shape.size
            assert abs(slices[op.src].pointer - slices[op.out].pointer) >= size


@pytest.mark.parametrize(
    "text",
    [
        layer(64) + squeeze(channels=128),
        layer(64) + squeeze(filters=16),
        layer(64) + squeeze(size=1),
        layer(64) + squeeze().replace("filters=32", "filters=32\nsize=3\npad=1"),
        layer(64) + layer(64) + squeeze(origin=-4),
        layer(64) + squeeze().partition("[shortcut]")[0],
        layer(64) + squeeze() + "[route]\nlayers=-1,-3\n",
        layer(16) + SECOND,
        layer(32, 2) + SECOND,
        FIRST + layer(64),
        FIRST + layer(64, 2, pad=0),
        FIRST + layer(128, 2),
        FIRST + layer(32, 2),
        FIRST + "[maxpool]\nsize=2\nstride=2\n" + layer(64),
        FIRST.replace("leaky", "elu") + SECOND,
        FIRST + SECOND + "[upsample]\n[route]\nlayers=-1,0\n",
        "[maxpool]\nsize=2\nstride=2\n" + FIRST + SECOND,
        "[crop]\ncrop_width=28\ncrop_height=28\n" + FIRST + SECOND,
        layer(64)
        + "[avgpool]\n[connected]\noutput=64\n[scale_channels]\nfrom=0\n"
        + squeeze(origin=0),
    ],
    ids=[
        *("other_channels", "other_filters", "of_one_pixel", "of_nine", "of_another_map"),
        *("nothing_added", "read_later"),
        *("few_channels", "halved_first", "not_halved", "no_border", "many_filters"),
        *("few_filters", "pool", "activation", "read_again"),
        *("after_a_pool", "after_a_crop", "scaled_before"),
    ],
)
def test_what_does_not_fit_stays_apart(text: str) -> None:
    assert not joined(plan_of(text + REST))


def test_what_is_kept_is_stored() -> None:
    assert joined(plan_of())
    assert not joined(plan_of(keeps=True))


@pytest.mark.parametrize(
    "change",
    [
        {"precision": "float32"},
        {"precision": "tf32"},
        {"capability": (8, 9)},
        {"algorithm": "im2col_gemm"},
    ],
    ids=str,
)
def test_only_halves_on_hopper_by_whatever_is_fastest(change: dict[str, Any]) -> None:
    assert not joined(plan_of(), replace(CARD, **change))


def test_a_link_beyond_the_range_is_named() -> None:
    plan = plan_of()
    first, second, *_ = plan.ops
    chain = Chain(second.out, (first, second))
    for large, named in ((first, "layer 0"), (second, "layer 1")):
        values = {first: 1.0, second: 1.0, large: 1e5}
        with pytest.raises(EngineError, match=f"{named} .*: activations reach 100000"):
            overflow.refuse(plan, chain, values)
    with pytest.raises(EngineError, match=r"layer 1 .*: activations leave the range"):
        overflow.refuse(plan, chain, {})
    overflow.refuse(plan, chain, {first: np.inf, second: np.inf})


# ---------------------------------------------------------------- on a card


@pytest.fixture(scope="module")
def card() -> Iterator[CudaDevice]:
    with open_hopper() as device:
        yield device


@pytest.mark.cuda
@pytest.mark.parametrize("side", [(416, 416), (90, 334), (29, 34)], ids=str)
@pytest.mark.parametrize("kinds", [("leaky", "leaky"), ("mish", "mish"), ("swish", "relu")])
@pytest.mark.parametrize("batch", [1, 9])
def test_results_are_nearly_those_of_a_map_that_is_stored(
    card: CudaDevice,
    monkeypatch: pytest.MonkeyPatch,
    side: tuple[int, int],
    kinds: tuple[str, str],
    batch: int,
) -> None:
    """Halves round where they are stored; sums with residuals by some kernels once more."""
    first, second = kinds
    text = layer(32, activation=first) + layer(64, 2, activation=second)
    text += squeeze(*kinds) + squeeze(second, first) + REST
    plan = plan_of(text, side)
    images = np.random.default_rng(1).random((batch, *plan.source.shape.sides), np.float32)
    results = []
    unfused = tuple(each for each in lowering.FUSION if each is not fusion.fuse_chains)
    for passes in (lowering.FUSION, unfused):
        monkeypatch.setattr(lowering, "FUSION", passes)
        with closing(card.compile(plan, batch=batch, precision="float16", tune=False)) as program:
            assert sum(isinstance(op, Chain) for op in program.plan.ops) == (0 if results else 3)
            results += program.forward(images)
    got, expected = results
    assert np.abs(got - expected).max() <= 4e-3 * np.abs(expected).max()
    assert np.square(got - expected).mean() <= 6e-7 * np.square(expected).mean()


@pytest.mark.cuda
def test_a_picture_that_leaves_the_range_names_its_layer(card: CudaDevice) -> None:
    plan = plan_of()
    with closing(card.compile(plan, precision="float16", tune=False)) as program:
        assert isinstance(program.plan.ops[0], Chain)
        images = np.full((1, *plan.source.shape.sides), 3e4, np.float32)
        images *= np.random.default_rng(1).choice([-1, 1], images.shape)
        with pytest.raises(EngineError, match=r"layer \d \[convolutional\]: activations reach"):
            program.forward(images)
