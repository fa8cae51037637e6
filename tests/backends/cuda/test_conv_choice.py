"""Which algorithm runs a convolution: forced, measured, or by the rule of thumb."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.backends.cuda import conv
from engine.backends.cuda.conv import Choice, sm90_base, unfused
from engine.backends.cuda.ops.target import Target
from engine.errors import DeviceError
from engine.plan import ops
from engine.plan.ops import Constant, Tensor
from engine.plan.shapes import Shape, Window
from tests.tails import conv2d, with_tail

TURING = Target(1, "float32", (7, 5), 40)
AMPERE = Target(8, "float32", (8, 6), 28)
HOPPER = Target(1, "float32", (9, 0), 132)
CARDS = [
    replace(card, precision=precision)
    for card in (TURING, AMPERE, HOPPER)
    for precision in ("float32", "tf32", "float16")
]


def convolution(
    channels: int, filters: int, size: int, side: int = 52, *, stride: int = 1, **options: Any
) -> ops.Conv2d:
    groups = options.get("groups", 1)
    out = (side - 1) // stride + 1
    return conv2d(
        Tensor(2, Shape(filters, out, out)),
        Tensor(1, Shape(channels, side, side)),
        Constant("weight", (filters, channels // groups, size, size)),
        Constant("bias", (filters,)),
        stride=(stride, stride),
        padding=(size // 2,) * 4,
        **options,
    )


LAYERS = {
    "first": convolution(3, 32, 3, 416),
    "wide": convolution(256, 512, 3),
    "halving": convolution(128, 256, 3, 104, stride=2),
    "pointwise": convolution(512, 256, 1),
    "head": convolution(1024, 255, 1, 13),
    "odd": convolution(37, 41, 5, 19),
    "grouped": convolution(128, 128, 3, groups=4),
    "depthwise": convolution(128, 128, 3, groups=128),
    "signed": convolution(128, 128, 3, signed=True),
    "signed_grouped": convolution(128, 128, 3, signed=True, groups=2),
    "dilated": convolution(64, 64, 3, dilation=(2, 2)),
}
OUT_OF_PLACE = {  # what would take many times as long as it needs to
    "first": {"xnor", "depthwise", "pointwise"},
    "wide": {"direct", "tiled"},
    "halving": {"direct", "tiled"},
    "pointwise": {"direct", "tiled", "im2col_gemm"},
    "head": {"direct", "tiled", "im2col_gemm"},
    "odd": {"direct"},
    "grouped": {"direct", "tiled", "im2col_gemm"},
    "dilated": {"direct", "tiled"},
}
every_card = pytest.mark.parametrize(
    "card", CARDS, ids=lambda card: f"sm_{card.capability[0]}{card.capability[1]}-{card.precision}"
)
every_layer = pytest.mark.parametrize("name", LAYERS)


@every_card
@every_layer
def test_the_choice_can_run_it(card: Target, name: str) -> None:
    assert conv.choose(card, LAYERS[name]) in conv.candidates(card, LAYERS[name])


def test_what_no_algorithm_can_run_is_one_line() -> None:
    op = replace(LAYERS["wide"], signed=True)  # signs are not multiplied as integers
    target = replace(HOPPER, precision="float16", scales={op.src: 0.1})
    assert not conv.candidates(target, op)
    with pytest.raises(DeviceError) as caught:
        conv.choose(target, op)
    assert str(caught.value) == (
        "cuda: a convolution of 256 x 52 x 52 to 512 x 52 x 52 in int8: "
        "no algorithm can run it on this card. Try another precision"
    )


@every_card
@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_the_rule_of_thumb_is_not_out_of_place(card: Target, name: str) -> None:
    assert conv.rule_of_thumb(card, LAYERS[name]).algorithm not in OUT_OF_PLACE[name]


@every_card
@pytest.mark.parametrize(("name", "expected"), [("depthwise", "depthwise"), ("signed", "xnor")])
def test_some_layers_have_an_algorithm_of_their_own(card: Target, name: str, expected: str) -> None:
    assert conv.rule_of_thumb(card, LAYERS[name]) == Choice(expected)


@every_layer
def test_hoppers_units_run_on_hopper_only(name: str) -> None:
    for card in CARDS:
        names = conv.candidates(card, LAYERS[name])
        uses = any(each.algorithm.startswith("sm90_splitk") for each in names)
        is_dense = name in ("wide", "halving", "pointwise", "head", "dilated")
        assert uses == (card.capability == (9, 0) and is_dense)


@every_layer
def test_something_can_run_it_where_pixels_are_out_of_line(name: str) -> None:
    """A tensor inside a concatenation need not begin on 16 bytes."""
    op = LAYERS[name]
    card = replace(HOPPER, misaligned=frozenset({op.src, op.out}))
    assert conv.choose(card, op) in conv.candidates(card, op)
    names = [each.algorithm for each in conv.candidates(card, op)]
    assert not any(name.startswith("sm90_splitk") for name in names)


# ---------------------------------------------------------------- forced and measured


def test_a_forced_algorithm_runs_what_it_can() -> None:
    forced = replace(TURING, algorithm="pointwise")
    assert conv.choose(forced, LAYERS["pointwise"]) == Choice("pointwise")
    assert conv.choose(forced, LAYERS["wide"]) == conv.choose(TURING, LAYERS["wide"])


def test_what_was_measured_comes_before_the_rule_of_thumb() -> None:
    op = LAYERS["wide"]
    measured = replace(TURING, measured={conv.signature(TURING, op): Choice("tiled")})
    assert conv.choose(measured, op) == Choice("tiled")
    assert conv.choose(replace(measured, algorithm="direct"), op) == Choice("direct")
    assert conv.choose(measured, LAYERS["halving"]) == conv.choose(TURING, LAYERS["halving"])


def test_a_measured_algorithm_that_cannot_run_it_is_passed_over() -> None:
    op = LAYERS["wide"]
    for name in ("pointwise", "of another version"):
        measured = replace(TURING, measured={conv.signature(TURING, op): Choice(name)})
        assert conv.choose(measured, op) == conv.choose(TURING, op)


# ---------------------------------------------------------------- signatures


def test_layers_of_one_shape_share_a_signature() -> None:
    op = LAYERS["wide"]
    twin = replace(
        op,
        out=Tensor(9, op.out.shape),
        src=Tensor(8, op.src.shape),
        weight=Constant("other", op.weight.shape),
    )
    assert conv.signature(TURING, twin) == conv.signature(TURING, op)


@pytest.mark.parametrize(
    "change",
    [
        {"src": Tensor(1, Shape(256, 53, 52))},
        {"weight": Constant("weight", (256, 512, 3, 1))},
        {"bias": None},
        {"stride": (1, 2)},
        {"padding": (1, 1, 1, 0)},
        {"dilation": (1, 2)},
        {"groups": 2},
        {"signed": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_that_time_depends_on_is_in_the_signature(change: dict[str, Any]) -> None:
    op = LAYERS["wide"]
    assert conv.signature(TURING, replace(op, **change)) != conv.signature(TURING, op)


@pytest.mark.parametrize(
    "tail",
    [{"activation": "mish"}, {"last_activation": "relu"}, {"residual": True}],
    ids=lambda tail: next(iter(tail)),
)
def test_the_tail_is_in_the_signature(tail: dict[str, Any]) -> None:
    op = convolution(256, 512, 3, activation="leaky")
    changed = convolution(256, 512, 3, **{"activation": "leaky", **tail})
    assert conv.signature(TURING, changed) != conv.signature(TURING, op)


@pytest.mark.parametrize("change", [{"batch": 2}, {"precision": "tf32"}], ids=str)
def test_batch_and_precision_are_in_the_signature(change: dict[str, Any]) -> None:
    op = LAYERS["wide"]
    assert conv.signature(replace(TURING, **change), op) != conv.signature(TURING, op)


def pooled(layer: ops.Conv2d, **tail: Any) -> ops.Conv2d:
    return with_tail(layer, **{"pool": Window((2, 2), (2, 2)), **tail})


@every_card
@every_layer
def test_a_pool_is_run_by_something(card: Target, name: str) -> None:
    op = pooled(LAYERS[name])
    assert conv.choose(card, op) in conv.candidates(card, op)
    assert name != "first" or conv.choose(replace(card, precision="float16"), op) == Choice(
        "few_channels_32"
    )


@every_card
@pytest.mark.parametrize("options", [{"activation": "mish"}, {"pool": Window((2, 2))}], ids=str)
def test_a_pool_that_does_not_fit_comes_after(card: Target, options: dict[str, Any]) -> None:
    op = pooled(LAYERS["wide"], **options)
    assert conv.candidates(card, op)
    assert all(choice.unfused for choice in conv.candidates(card, op))


def test_the_algorithm_that_is_forced_comes_before_the_pool() -> None:
    op, forced = pooled(LAYERS["wide"]), replace(HOPPER, algorithm="im2col_gemm")
    assert conv.choose(forced, op) == Choice("im2col_gemm", unfused=True)


def test_long_sums_are_computed_by_the_fastest_kernel_unless_there_are_few() -> None:
    card = replace(HOPPER, precision="float16", batch=64)
    assert conv.choose(card, pooled(LAYERS["wide"])).unfused
    few = conv.choose(replace(card, batch=1), pooled(LAYERS["wide"]))
    short = conv.choose(card, pooled(convolution(32, 64, 3, 104)))
    for choice in (few, short):
        assert choice.algorithm.startswith("sm90_splitk")
        assert not choice.unfused


def test_measurements_of_a_convolution_are_not_those_of_one_with_a_pool() -> None:
    wide = LAYERS["wide"]
    assert conv.signature(HOPPER, wide) != conv.signature(HOPPER, pooled(wide))


def detecting(layer: ops.Conv2d) -> ops.Conv2d:
    return with_tail(layer, yolo={"anchors": 3, "classes": 80})


@every_card
def test_a_detection_layer_is_run_by_something(card: Target) -> None:
    op = detecting(LAYERS["head"])
    assert conv.choose(card, op) in conv.candidates(card, op)
    assert conv.signature(card, op) != conv.signature(card, LAYERS["head"])
    if card.precision == "float16":
        own = "sm90_splitk" if card.capability == HOPPER.capability else "implicit_gemm"
        assert conv.choose(card, op).algorithm.startswith(own)
        assert not conv.choose(card, op).unfused


def test_a_detection_layer_leaves_in_eights_where_it_has_room() -> None:
    op, card = detecting(LAYERS["head"]), replace(HOPPER, precision="float16")
    for crowded, is_whole in ((frozenset(), True), (frozenset({op.out}), False)):
        target = replace(card, misaligned=crowded)
        params = sm90_base.epilogue_params(target, op)
        assert (params["is_whole"], params["yolo"]) == (is_whole, True)


@every_card
def test_what_goes_between_two_kernels_is_stored_as_its_channels_allow(card: Target) -> None:
    head, wide = detecting(LAYERS["head"]), pooled(LAYERS["wide"])
    for op, is_crooked in ((head, True), (wide, False)):
        target, part = unfused.alone(card, op)
        assert (part.out in target.misaligned) == is_crooked
    target, part = unfused.alone(replace(card, floats=frozenset({head.out})), head)
    assert part.out in target.floats
