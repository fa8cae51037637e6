"""Tiles of the tensor-core kernels: what fits where, what they take, and their weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda import conv
from engine.backends.cuda.conv import few_channels, implicit_gemm, sm90_base, tensor_cores
from engine.backends.cuda.conv.implicit_gemm import Bundles, bundles
from engine.backends.cuda.conv.kernel_args import Divisor
from engine.backends.cuda.conv.sm90_splitk import SplitKTile
from engine.backends.cuda.driver import tiles
from engine.backends.cuda.ops.target import Target, most_shared_bytes
from engine.plan.ops import Constant, Conv2d, Tensor
from engine.plan.shapes import Shape
from tests.tails import conv2d

CARDS = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (12, 0)]
HALVES = Target(1, "float16", (8, 0), 108)

every_card = pytest.mark.parametrize("capability", CARDS, ids="sm_{0[0]}{0[1]}".format)
every_precision = pytest.mark.parametrize("precision", ["float16", "tf32", "float32"])


def convolution(
    channels: int, filters: int, size: int = 3, side: int = 13, **options: Any
) -> Conv2d:
    return conv2d(
        Tensor(2, Shape(filters, side, side)),
        Tensor(1, Shape(channels, side, side)),
        Constant("weight", (filters, channels // options.get("groups", 1), size, size)),
        Constant("bias", (filters,)),
        padding=(size // 2,) * 4,
        **options,
    )


def takes(target: Target, op: Conv2d, kind: str) -> bool:
    return any(each.algorithm.startswith(kind) for each in conv.candidates(target, op))


@every_card
@every_precision
def test_what_is_supported_fits_into_shared_memory(
    capability: tuple[int, int], precision: str
) -> None:
    target = replace(HALVES, capability=capability, precision=precision)
    layers = [convolution(64, 512), convolution(8, 40), convolution(3, 64, 7, 112)]
    tiles = [
        each.tile(target, op)
        for op in layers
        for each in (*implicit_gemm.ALGORITHMS, *few_channels.ALGORITHMS)
        if each.supports(target, op)
    ]
    assert bool(tiles) == (precision == "float16" or capability >= (8, 0))
    for tile in tiles:
        assert tile.shared_bytes <= most_shared_bytes(capability)
        assert tile.threads <= 1024


@every_precision
def test_threads_copy_a_slice_in_whole_rounds(precision: str) -> None:
    target = replace(HALVES, precision=precision)
    for op in (convolution(64, 512), convolution(8, 64)):
        for each in implicit_gemm.ALGORITHMS:
            if each.supports(target, op):
                tile = each.tile(target, op)
                rows_at_once = tile.threads * 16 // (tile.depth * target.value_bytes)
                assert tile.rows % rows_at_once == tile.columns % rows_at_once == 0


def test_turing_has_two_stages() -> None:
    turing = replace(HALVES, capability=(7, 5))
    for each in implicit_gemm.ALGORITHMS:
        if each.supports(turing, convolution(64, 512)):
            assert each.tile(turing, convolution(64, 512)).stages == 2


@pytest.mark.parametrize(
    ("op", "gemm", "gathers"),
    [
        (convolution(64, 64), True, False),
        (convolution(8, 18), True, True),
        (convolution(3, 32), False, True),
        (convolution(36, 64), False, False),
        (convolution(21, 256, 3), False, True),
        (convolution(64, 64, groups=64), False, False),
        (convolution(64, 64, signed=True), False, False),
        (convolution(8, 64, signed=True), False, False),
        (convolution(64, 64, activation="stair"), False, False),
        (convolution(8, 64, 1, last_activation="stair"), False, False),
    ],
    ids=str,
)
def test_what_each_kernel_takes(op: Conv2d, gemm: bool, gathers: bool) -> None:
    assert takes(HALVES, op, "implicit_gemm_") == gemm
    assert takes(HALVES, op, "few_channels_") == gathers


def test_pixels_that_begin_anywhere_are_only_gathered() -> None:
    op = convolution(8, 16)
    target = replace(HALVES, misaligned=frozenset({op.src}))
    assert not takes(target, op, "implicit_gemm_")
    assert takes(target, op, "few_channels_")


def test_floats_need_ampere() -> None:
    for precision in ("tf32", "float32"):
        for op in (convolution(64, 64), convolution(3, 32)):
            turing = replace(HALVES, capability=(7, 5), precision=precision)
            assert not takes(turing, op, "implicit_gemm_")
            assert not takes(turing, op, "few_channels_")


@pytest.mark.parametrize(
    ("groups", "channels", "filters", "expected"),
    [
        (1, 64, 64, Bundles(1, 1, 64, 64, 64, 9)),
        (1, 60, 64, None),
        (32, 128, 128, Bundles(8, 4, 32, 32, 64, 5)),
        (32, 256, 256, Bundles(4, 8, 32, 32, 64, 5)),
        (4, 128, 128, Bundles(1, 4, 32, 32, 64, 5)),
        (2, 8, 4, Bundles(2, 1, 8, 4, 32, 3)),
        (3, 12, 12, None),
    ],
)
def test_narrow_groups_are_bundled(
    groups: int, channels: int, filters: int, expected: Bundles | None
) -> None:
    op = convolution(channels, filters, groups=groups)
    assert takes(HALVES, op, "implicit_gemm_") == (expected is not None)
    assert expected in (None, bundles(HALVES, op))


def test_bundled_groups_do_not_see_each_other() -> None:
    op = convolution(16, 8, 1, groups=4)
    weight = np.arange(1.0, 33.0, dtype=np.float32).reshape(op.weight.shape)
    algorithm = conv.ALGORITHMS["implicit_gemm_64x32x6_split1"]
    made = algorithm.prepare(HALVES, op, {"weight": weight})["weight"]
    dense, low = made[:, :8, :16].astype(np.float32)
    assert not low.any()  # such weights are halves as they are
    assert not made[:, 8:].any()
    assert not made[:, :, 16:].any()
    for group in range(4):
        rows, columns = slice(2 * group, 2 * group + 2), slice(4 * group, 4 * group + 4)
        assert np.array_equal(dense[rows, columns], weight[rows, :, 0, 0])
        dense[rows, columns] = 0
    assert not dense.any()


def split(name: str) -> tuple[conv.Algorithm, Conv2d]:
    return conv.ALGORITHMS[name], convolution(512, 256)


def test_a_split_has_room_for_every_part_and_a_counter_for_every_tile() -> None:
    algorithm, op = split("implicit_gemm_64x64x4_split4")
    tiles = -(-13 * 13 // 64) * (256 // 64)
    weight = np.zeros(op.weight.shape, np.float32)
    made = algorithm.prepare(HALVES, op, {"weight": weight})
    assert algorithm.workspace(HALVES, op) == tiles * 4 * 64 * 64 * 4
    assert made["arrivals"].shape == (tiles,)
    assert not made["arrivals"].any()


def test_only_few_tiles_with_long_sums_are_split() -> None:
    algorithm, op = split("implicit_gemm_64x64x4_split8")
    assert algorithm.supports(HALVES, op)
    assert not algorithm.supports(HALVES, convolution(64, 256))
    assert not algorithm.supports(replace(HALVES, batch=64), op)


def test_split_floats_are_no_rule_where_floats_are_as_fast() -> None:
    op = convolution(64, 128)
    for capability, precision, is_rule in [
        ((8, 0), "float32", True),
        ((8, 6), "float32", False),
        ((8, 9), "float32", False),
        ((8, 6), "tf32", True),
        ((8, 6), "float16", True),
    ]:
        target = replace(HALVES, capability=capability, precision=precision)
        rule = conv.rule_of_thumb(target, op).algorithm
        assert rule.startswith("implicit_gemm") == is_rule


def test_high_and_low_parts_make_up_a_float() -> None:
    values = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    high, low = np.split(tensor_cores.factors(values, 2), 2)
    assert not ((high.view(np.uint32) | low.view(np.uint32)) & 0x1FFF).any()
    np.testing.assert_allclose(high.astype(np.float64) + low, values, rtol=2**-22, atol=0)
    high, low = np.split(tensor_cores.factors(values, tiles.EXACT_HALVES), 2)
    assert high.dtype == low.dtype == np.float16
    np.testing.assert_allclose(high.astype(np.float64) + low, values, rtol=2**-21, atol=2**-25)


@pytest.mark.parametrize("depth", [8, 16, 32])
def test_weights_lie_as_a_map_would_have_left_them(depth: int) -> None:
    """Bits 4 to 6 of an address are those of the chunk and of the row, of 128 bytes, it is in."""
    sides = (64, 32, depth, 4, 1, 1, tiles.MODES["float32"], 4, (0, 0), True)
    tile = SplitKTile(*sides)
    weight = np.random.default_rng(0).normal(size=(40, 2 * depth - 4, 3, 1)).astype(np.float32)
    made = sm90_base.slices(weight, tile)
    slots = made.reshape(2, 6, 2, -1)  # tiles, slices, high and low parts
    for f, c, tap in np.random.default_rng(1).integers(0, (40, 2 * depth, 3), (300, 3)).tolist():
        at = (f % 32 * depth + c % depth) * 4
        at ^= (at >> 7 & (depth * 4 // 16 - 1)) << 4
        high, low = slots[f // 32, tap * 2 + c // depth, :, at // 4]
        expected = weight[f, c, tap, 0] if c < weight.shape[1] else 0.0
        assert high + low == pytest.approx(expected, rel=2**-22)
    assert not slots[1, :, :, 8 * depth :].any()  # beyond the last filter


def test_a_product_and_a_shift_divide() -> None:
    random = np.random.default_rng(0)
    for divisor in (*range(1, 70), 416, 608, 4095, 65537, 2**20, 2**31 - 1):
        by = Divisor.by(divisor)
        values = random.integers(0, 2**31, 300).tolist()
        near = [divisor * n + d for n in (1, 2, 2**31 // divisor - 1) for d in (-1, 0, 1)]
        for value in (0, 2**31 - 1, *values, *(n for n in near if 0 <= n < 2**31)):
            assert value * by.factor >> by.shift == value // divisor


def test_a_text_includes_each_header_once() -> None:
    op = convolution(64, 64)
    text = conv.ALGORITHMS["implicit_gemm_64x64x4_split1"].tile(HALVES, op).text()
    assert '#include "' not in text
    assert text.count("typedef half real;") == 1
