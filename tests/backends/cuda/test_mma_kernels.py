"""The portable tensor-core kernels, their own text run on the CPU, against float64.

Every tile is a unit of its own for g++, so most of these tests are slow the first time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from engine.backends.cuda.conv import ALGORITHMS, Algorithm, implicit_gemm
from engine.backends.cuda.conv.algorithm import ScaledConv2d
from engine.backends.cuda.ops.target import Target
from engine.plan.activations import ACTIVATIONS
from engine.plan.ops import Constant, Conv2d, Multiply, Tensor, YoloOutput
from engine.plan.shapes import Shape, Window, window_count
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.tensor_host import run
from tests.tails import conv2d, with_tail

Array = NDArray[Any]

pytestmark = [
    pytest.mark.slow,
    needs_gxx,
]

TURING, AMPERE = (7, 5), (8, 0)
# Largest error as a share of the largest value: operands of 11 bits, and of 24.
TOLERANCES = {"float16": 2e-3, "tf32": 2e-3, "float32": 2e-6}


TILE = Window((2, 2), (2, 2))


def convolution(
    src: tuple[int, int, int],
    filters: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    has_bias: bool = True,
    has_residual: bool = False,
    is_pooled: bool = False,
    **options: Any,
) -> Conv2d:
    stride, dilation = options.get("stride", (1, 1)), options.get("dilation", (1, 1))
    top, left, bottom, right = padding
    height = window_count(src[1], dilation[0] * (kernel[0] - 1) + 1, stride[0], top + bottom)
    width = window_count(src[2], dilation[1] * (kernel[1] - 1) + 1, stride[1], left + right)
    return conv2d(
        Tensor(2, Shape(filters, height, width)),
        Tensor(1, Shape(*src)),
        Constant("weight", (filters, src[0] // options.get("groups", 1), *kernel)),
        Constant("bias", (filters,)) if has_bias else None,
        padding=padding,
        pool=TILE if is_pooled else None,
        **{"residual": has_residual, **options},
    )


@dataclass
class Problem:
    op: Conv2d
    rows: int
    weights_are_halves: bool = True

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.op.src.shape.size)

        def draw(shape: tuple[int, ...]) -> Array:
            """Values that a half can hold: what is left is the kernel's own error."""
            return random.normal(size=shape).astype(np.float16).astype(np.float32)

        op = self.op
        weight = draw(op.weight.shape)
        if not self.weights_are_halves:
            weight *= np.float32(1.0003)  # as many bits as a float has
        self.constants = {"weight": weight}
        if op.bias:
            self.constants["bias"] = draw(op.bias.shape)
        self.inputs = {each: draw((self.rows, *each.shape.sides)) for each in op.reads}

    def expected(self) -> Array:
        op = self.op
        top, left, bottom, right = op.padding
        sides = ((0, 0), (0, 0), (top, bottom), (left, right))
        src = self.inputs[op.src].astype(np.float64)
        if isinstance(op, ScaledConv2d):
            src *= self.inputs[op.factor]
        padded = np.pad(src, sides)
        reach = [(k - 1) * d + 1 for k, d in zip(op.kernel, op.dilation, strict=True)]
        windows = sliding_window_view(padded, reach, axis=(2, 3))
        windows = windows[
            :, :, :: op.stride[0], :: op.stride[1], :: op.dilation[0], :: op.dilation[1]
        ]
        weight = self.constants["weight"].astype(np.float64)
        parts = [
            np.einsum("bchwij,ncij->bnhw", cells, filters, optimize=True)
            for cells, filters in zip(
                np.split(windows, op.groups, axis=1), np.split(weight, op.groups), strict=True
            )
        ]
        values = np.concatenate(parts, axis=1)
        if op.bias:
            values += self.constants["bias"][:, None, None]
        values = ACTIVATIONS[op.activation].numpy(values)
        if op.pool:
            tiles = sliding_window_view(values, op.pool.size, axis=(2, 3))
            values = tiles[:, :, ::2, ::2].max(axis=(4, 5))
        if op.residual:
            more = self.inputs[op.residual].reshape(len(values), -1)  # added in flat order
            values = values + more[:, : values[0].size].reshape(values.shape)
        values = np.asarray(ACTIVATIONS[op.last_activation].numpy(values))
        if op.upsample:
            return values.repeat(op.upsample.stride, axis=2).repeat(op.upsample.stride, axis=3)
        return values if op.yolo is None else yolo_output(op.yolo, values)


def yolo_output(yolo: YoloOutput, values: Array) -> Array:
    """Compute the definition, value by value."""
    out = values.copy()
    for channel in range(values.shape[1]):
        entry = channel % (yolo.box + 1 + yolo.classes)
        mean_and_sigma = 1 if yolo.box == 4 else 2
        is_extent = entry < yolo.box and entry % mean_and_sigma == 0 and entry // mean_and_sigma > 1
        is_centre = entry < yolo.box and entry % mean_and_sigma == 0 and entry // mean_and_sigma < 2
        if not yolo.raw and not is_extent:
            out[:, channel] = 1 / (1 + np.exp(-out[:, channel]))
        if is_centre:
            out[:, channel] = out[:, channel] * yolo.scale_x_y - (yolo.scale_x_y - 1) / 2
    return out


def target_for(
    op: Conv2d,
    *,
    precision: str,
    capability: tuple[int, int],
    margin: int,
    rows: int,
    floats: frozenset[Tensor],
    multiprocessors: int = 2,
) -> Target:
    target = Target(rows, precision, capability, multiprocessors, floats=floats)
    crooked = frozenset(
        each
        for each in (*op.reads, op.out)
        if margin * target.bytes_of(each) % 16
        or (each.shape.channels + 2 * margin) * target.bytes_of(each) % 16
    )
    return replace(target, misaligned=crooked)


def check(
    algorithm: Any,
    op: Conv2d,
    *,
    precision: str,
    capability: tuple[int, int] = AMPERE,
    margin: int = 0,
    room: int = 0,
    rows: int = 2,
    first: int = 0,
    floats: frozenset[Tensor] = frozenset(),
    weights_are_halves: bool = True,
    tolerance: float | None = None,
    multiprocessors: int = 2,
    present: int | None = None,
) -> None:
    problem = Problem(op, rows, weights_are_halves)
    sizes = {"capability": capability, "margin": margin, "rows": rows}
    sizes["multiprocessors"] = multiprocessors
    target = target_for(op, precision=precision, floats=floats, **sizes)  # type: ignore[arg-type]
    assert algorithm.supports(target, op)
    where = {"margin": margin, "room": room, "first": first, "present": present}
    got = run(algorithm, target, op, problem.constants, problem.inputs, **where)  # type: ignore[arg-type]
    expected = problem.expected()[:present]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        got, expected, rtol=0, atol=(tolerance or TOLERANCES[precision]) * scale
    )


every_precision = pytest.mark.parametrize("precision", TOLERANCES)
every_side = pytest.mark.parametrize("side", [(8, 12), (9, 7), (2, 3)], ids=str)

# ---------------------------------------------------------------- implicit_gemm

EVERYTHING = convolution(
    (40, 9, 7), 75, stride=(2, 1), activation="leaky", has_residual=True, last_activation="relu"
)
GEMMS = {
    "8_channels": convolution((8, 7, 9), 18),
    "24_channels": convolution((24, 6, 7), 32, activation="mish"),
    "pointwise": convolution((72, 5, 7), 64, (1, 1), padding=(0, 0, 0, 0), activation="swish"),
    "dilated": convolution((16, 9, 8), 40, dilation=(2, 3), padding=(2, 3, 1, 2)),
    "crooked": convolution((8, 9, 11), 20, (5, 2), stride=(2, 3), padding=(2, 0, 1, 1)),
    "groups": convolution((64, 5, 6), 96, groups=2, activation="logistic", has_residual=True),
    "narrow_groups": convolution((32, 5, 6), 64, groups=8, activation="relu"),
    "without_bias": convolution((8, 5, 6), 8, has_bias=False),
    "everything": EVERYTHING,
}
SMALL = ALGORITHMS["implicit_gemm_64x32x6_split1"]
UNSPLIT = [each.name for each in implicit_gemm.ALGORITHMS if each.split == 1]
SMALL_SPLIT_FLOAT = ALGORITHMS["implicit_gemm_64x32x4_split1"]


def small(precision: str) -> Algorithm:
    return SMALL_SPLIT_FLOAT if precision == "float32" else SMALL


@pytest.mark.parametrize("op", GEMMS.values(), ids=GEMMS)
@every_precision
def test_implicit_gemm_agrees_with_the_definition(op: Conv2d, precision: str) -> None:
    check(small(precision), op, precision=precision)


@pytest.mark.parametrize("op", GEMMS.values(), ids=GEMMS)
def test_implicit_gemm_agrees_on_turing(op: Conv2d) -> None:
    check(SMALL, op, precision="float16", capability=TURING)


@every_precision
def test_implicit_gemm_writes_between_the_margins(precision: str) -> None:
    check(small(precision), GEMMS["groups"], precision=precision, margin=8)


@pytest.mark.parametrize("name", UNSPLIT)
@every_precision
def test_every_tile_agrees_with_the_definition(name: str, precision: str) -> None:
    algorithm = ALGORITHMS[name]
    op = convolution((24, 9, 8), 130, activation="leaky", has_residual=True)
    if algorithm.supports(Target(2, precision, AMPERE, 2), op):
        check(algorithm, op, precision=precision)


@pytest.mark.parametrize("first", [0, 1, 5])
@pytest.mark.parametrize("split", [2, 4])
def test_a_split_sum_is_added_up_by_whichever_block_is_last(split: int, first: int) -> None:
    algorithm = ALGORITHMS[f"implicit_gemm_64x32x6_split{split}"]
    op = convolution((128, 5, 6), 40, activation="leaky")
    check(algorithm, op, precision="float16", first=first, rows=3)


@every_side
@every_precision
def test_implicit_gemm_pools(precision: str, side: tuple[int, int]) -> None:
    op = convolution((24, *side), 75, activation="leaky", is_pooled=True)
    check(small(precision), op, precision=precision, rows=3)


@pytest.mark.parametrize("name", UNSPLIT)
@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_every_tile_pools(name: str, precision: str) -> None:
    algorithm = ALGORITHMS[name]
    op = convolution((24, 18, 8), 130, activation="relu", is_pooled=True)
    if algorithm.supports(Target(2, precision, AMPERE, 2), op):
        check(algorithm, op, precision=precision)


def test_what_a_split_summed_is_pooled() -> None:
    op = convolution((128, 8, 6), 40, stride=(1, 2), activation="leaky", is_pooled=True)
    check(
        ALGORITHMS["implicit_gemm_64x32x6_split4"],
        op,
        precision="float16",
        first=3,
        rows=3,
    )


def detecting(classes: int, *, channels: int = 40, **options: Any) -> Conv2d:
    anchors, entries = 3, options.get("box", 4) + 1 + classes
    op = convolution((channels, 5, 7), anchors * entries, (1, 1), padding=(0, 0, 0, 0))
    return with_tail(op, yolo={"anchors": anchors, "classes": classes, **options})


DETECTING = {
    "3_classes": detecting(3),
    "20_classes_scaled": detecting(20, scale_x_y=1.05),
    "raw": detecting(1, raw=True, scale_x_y=2.0),
    "gaussian": detecting(6, box=8),
}


@pytest.mark.parametrize("op", DETECTING.values(), ids=DETECTING)
@every_precision
def test_implicit_gemm_makes_what_a_detection_layer_has(op: Conv2d, precision: str) -> None:
    check(small(precision), op, precision=precision)


def test_scores_that_share_a_reciprocal_end_at_one() -> None:
    op = detecting(60)
    problem = Problem(op, rows=8)
    problem.constants["weight"] *= 4
    floats = frozenset({op.out})
    target = target_for(op, precision="float16", capability=AMPERE, margin=0, rows=8, floats=floats)
    got = run(SMALL, target, op, problem.constants, problem.inputs)
    assert got.reshape(8, 3, 65, -1)[:, :, 4:].max() == 1


@pytest.mark.parametrize("split", [1, 2])
def test_a_detection_layer_of_a_net_of_halves_is_of_floats(split: int) -> None:
    op = replace(DETECTING["20_classes_scaled"], src=Tensor(1, Shape(520, 5, 7)))
    op = replace(op, weight=Constant("weight", (75, 520, 1, 1)))
    algorithm = ALGORITHMS[f"implicit_gemm_64x32x6_split{split}"]
    check(algorithm, op, precision="float16", floats=frozenset({op.out}), tolerance=2e-6)


# ---------------------------------------------------------------- few_channels

THIN = {
    "3x3": convolution((3, 11, 13), 16, activation="leaky"),
    "3x3_stride_2": convolution((3, 11, 13), 24, stride=(2, 2), activation="mish"),
    "1_channel": convolution((1, 9, 8), 18, dilation=(2, 1), has_residual=True),
    "5_channels": convolution((5, 9, 8), 30, (2, 3), padding=(0, 1, 1, 2), has_bias=False),
    "pixels_that_share": convolution((6, 7, 9), 6, has_residual=True, last_activation="logistic"),
    "7x7_stride_2": convolution((3, 15, 14), 70, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3)),
}


@pytest.mark.parametrize("op", THIN.values(), ids=THIN)
@every_precision
def test_thin_agrees_with_the_definition(op: Conv2d, precision: str) -> None:
    check(ALGORITHMS["few_channels_16"], op, precision=precision)


@pytest.mark.parametrize("columns", [32, 64, 96])
@every_precision
def test_thin_takes_more_filters_at_once(columns: int, precision: str) -> None:
    op = convolution((3, 11, 13), columns + 6, activation="leaky")
    check(ALGORITHMS[f"few_channels_{columns}"], op, precision=precision, margin=8)


@every_side
@pytest.mark.parametrize("columns", [16, 32, 64])
@every_precision
def test_thin_pools(precision: str, columns: int, side: tuple[int, int]) -> None:
    op = convolution((3, *side), columns + 6, activation="leaky", is_pooled=True)
    for margin in (0, 3, 8):
        check(
            ALGORITHMS[f"few_channels_{columns}"],
            op,
            precision=precision,
            margin=margin,
            rows=5,
        )


@every_precision
def test_thin_makes_what_a_detection_layer_has(precision: str) -> None:
    check(
        ALGORITHMS["few_channels_16"],
        DETECTING["3_classes"],
        precision=precision,
        margin=3,
    )


WIDE = {
    "1_pixel": convolution((3, 1, 1), 16, activation="relu"),
    "large": convolution((3, 9, 75), 32, activation="leaky"),
    "large_stride_2": convolution((3, 9, 150), 21, stride=(2, 2), activation="mish"),
    "large_pooled": convolution((3, 12, 72), 32, activation="leaky", is_pooled=True),
    "pooled_stride_2": convolution((3, 21, 75), 16, stride=(2, 2), is_pooled=True),
    "never_outside": convolution((3, 7, 9), 24, padding=(0, 0, 0, 0)),
    "dilated": convolution((3, 9, 80), 16, dilation=(2, 3), padding=(1, 3, 2, 3)),
}


@pytest.mark.parametrize("op", WIDE.values(), ids=WIDE)
@every_precision
def test_thin_reads_a_pixel_of_three_channels_at_once(op: Conv2d, precision: str) -> None:
    columns = 16 if precision == "float32" or op.out.shape.channels <= 16 else 32
    check(ALGORITHMS[f"few_channels_{columns}"], op, precision=precision, room=1, rows=3)


@pytest.mark.parametrize(
    ("name", "room"), [("1_channel", 3), ("5_channels", 3), ("7x7_stride_2", 1)]
)
@every_precision
def test_thin_leaves_out_what_lies_between_pixels(name: str, room: int, precision: str) -> None:
    for columns in (16, 32):
        if columns < 2 * THIN[name].out.shape.channels:
            check(
                ALGORITHMS[f"few_channels_{columns}"],
                THIN[name],
                precision=precision,
                room=room,
            )


@every_precision
def test_thin_needs_no_alignment(precision: str) -> None:
    check(ALGORITHMS["few_channels_16"], THIN["1_channel"], precision=precision, margin=3)


def scaled(channels: int, side: tuple[int, int], filters: int, **options: Any) -> ScaledConv2d:
    op = convolution((channels, *side), filters, (1, 1), padding=(0, 0, 0, 0), **options)
    product, factor = op.src, Tensor(4, Shape(channels, 1, 1))
    return ScaledConv2d.of(Multiply(product, replace(product, index=5), factor), op)


SCALED = {  # of a picture: fewer pixels than a warp takes, as many, several times as many and some
    "small": scaled(16, (3, 3), 16, activation="leaky"),
    "whole_runs": scaled(32, (16, 8), 24, has_residual=True),
    "deep": scaled(144, (7, 13), 20, has_bias=False),
    "deepest": scaled(192, (5, 9), 40, has_residual=True, last_activation="relu"),
    "wide": scaled(24, (7, 9), 130, activation="swish", has_residual=True),
}


@pytest.mark.parametrize(
    ("name", "columns"),
    [("small", 16), ("whole_runs", 32), ("deep", 16), ("deepest", 64), ("wide", 96)],
)
@every_precision
def test_thin_reads_a_product_that_nobody_has_stored(
    name: str, columns: int, precision: str
) -> None:
    algorithm = ALGORITHMS[f"few_channels_{columns}"]
    for margin, rows in ((0, 1), (8, 7)):
        check(algorithm, SCALED[name], precision=precision, margin=margin, rows=rows)


@pytest.mark.parametrize("op", SCALED.values(), ids=SCALED)
@every_precision
def test_implicit_gemm_reads_a_product_that_nobody_has_stored(
    op: ScaledConv2d, precision: str
) -> None:
    for margin, rows in ((0, 1), (8, 3)):
        check(small(precision), op, precision=precision, margin=margin, rows=rows)


@pytest.mark.parametrize(("split", "capability"), [(1, TURING), (2, AMPERE), (2, TURING)], ids=str)
def test_blocks_that_share_a_sum_read_their_own_factors(
    split: int, capability: tuple[int, int]
) -> None:
    op = scaled(520, (16, 6), 40, activation="leaky")
    algorithm = ALGORITHMS[f"implicit_gemm_64x32x6_split{split}"]
    check(algorithm, op, precision="float16", capability=capability, rows=2)


def test_thin_wants_whole_pieces_of_a_product() -> None:
    op, target = SCALED["small"], Target(1, "float16", AMPERE, 2)
    assert ALGORITHMS["few_channels_16"].supports(target, op)
    for crooked in (op.src, op.factor):
        crooked_one = replace(target, misaligned=frozenset({crooked}))
        assert not ALGORITHMS["few_channels_16"].supports(crooked_one, op)


# ---------------------------------------------------------------- one kind in, the other out

MIXED = {
    "implicit_gemm": (small, convolution((24, 9, 7), 75, activation="mish", has_residual=True)),
    "mma_conv_1x1": (small, convolution((72, 5, 7), 64, (1, 1), padding=(0, 0, 0, 0))),
    "mma_conv_pooled": (small, convolution((24, 9, 7), 75, activation="leaky", is_pooled=True)),
    "few_channels": (lambda _: ALGORITHMS["few_channels_16"], THIN["1_channel"]),
    "thin_conv_1x1": (
        lambda _: ALGORITHMS["few_channels_16"],
        convolution((6, 5, 7), 36, (1, 1), padding=(0, 0, 0, 0), activation="relu"),
    ),
}
every_mixed = pytest.mark.parametrize(("kernel", "op"), MIXED.values(), ids=MIXED)


@pytest.mark.parametrize("margin", [0, 3, 8])
@every_mixed
def test_halves_become_floats(kernel: Any, op: Conv2d, margin: int) -> None:
    if margin == 3 and kernel is small:
        pytest.skip("its windows are copied 16 bytes at a time")
    floats = frozenset({op.out, op.residual} - {None})
    options: Any = {"precision": "float16", "margin": margin, "floats": floats}
    check(kernel("float16"), op, **options, tolerance=2e-6)


@pytest.mark.parametrize("margin", [0, 8])
@every_mixed
def test_floats_become_halves(kernel: Any, op: Conv2d, margin: int) -> None:
    options: Any = {"precision": "float16", "margin": margin, "floats": frozenset({op.src})}
    check(kernel("float32"), op, **options, weights_are_halves=False, tolerance=5e-4)


NARROW = {
    "implicit_gemm": (SMALL, convolution((48, 5, 7), 40, (1, 1), padding=(0, 0, 0, 0))),
    "mma_conv_of_groups": (SMALL, convolution((32, 5, 6), 32, groups=8)),
    "few_channels": (ALGORITHMS["few_channels_16"], THIN["3x3"]),
    "thin_conv_1x1": (
        ALGORITHMS["few_channels_32"],
        convolution((36, 5, 7), 32, (1, 1), padding=(0, 0, 0, 0)),
    ),
}


@pytest.mark.parametrize("capability", [TURING, AMPERE])
@pytest.mark.parametrize(("algorithm", "op"), NARROW.values(), ids=NARROW)
def test_narrow_sums_keep_the_bits_of_their_weights(
    algorithm: Any, op: Conv2d, capability: tuple[int, int]
) -> None:
    floats = frozenset({op.out})
    options: Any = {"precision": "float16", "capability": capability, "floats": floats}
    check(algorithm, op, **options, weights_are_halves=False, tolerance=2e-6)
