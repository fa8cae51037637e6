"""Hopper's kernels, their own text run on the CPU over sm90.h, against float64."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda.conv import ALGORITHMS, sm90_fused
from engine.backends.cuda.conv.algorithm import KeepingConv2d
from engine.backends.cuda.conv.sm90_base import MOST_SHARED
from engine.backends.cuda.conv.tensor_cores import HOPPER
from engine.backends.cuda.lower.lowered import Step
from engine.backends.cuda.ops.target import Target
from engine.plan.ops import Chain, Conv2d, MaxPool, Tensor
from engine.plan.shapes import Shape
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.tensor_host import run
from tests.backends.cuda.test_mma_kernels import (
    TILE,
    TOLERANCES,
    Problem,
    check,
    convolution,
    detecting,
    target_for,
)

pytestmark = [
    pytest.mark.slow,
    needs_gxx,
]

every_precision = pytest.mark.parametrize("precision", TOLERANCES)

OPS = {
    "1x1": convolution((72, 5, 7), 40, (1, 1), padding=(0, 0, 0, 0), activation="swish"),
    "3x3": convolution((24, 9, 8), 72, activation="leaky", has_residual=True),
    "stride_2": convolution(
        (16, 9, 7), 36, stride=(2, 2), has_residual=True, last_activation="relu"
    ),
    "crooked": convolution((40, 9, 11), 33, (5, 2), stride=(1, 3), padding=(2, 0, 1, 1)),
    "detecting": detecting(6, scale_x_y=1.05),
}


SMALL = {"float16": "sm90_splitk_64x64x4x3_split1"}


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@every_precision
def test_a_block_for_each_tile_agrees_with_the_definition(op: Conv2d, precision: str) -> None:
    name = SMALL.get(precision, "sm90_splitk_64x32x4x3_split1")
    check(ALGORITHMS[name], op, precision=precision, capability=HOPPER)


@pytest.mark.parametrize("split", [2, 6])
@every_precision
def test_a_cluster_shares_the_sum_over_k(precision: str, split: int) -> None:
    """Six blocks share four eights of columns, and the inbox lies apart."""
    tile = "64x32x8x1" if precision == "float16" else "64x32x4x3"
    op = convolution((200, 5, 7), 44, has_residual=True, activation="leaky")
    algorithm = ALGORITHMS[f"sm90_splitk_{tile}_split{split}"]
    check(algorithm, op, precision=precision, capability=HOPPER)


@pytest.mark.parametrize(
    "name", ["sm90_splitk_128x96x6x1_split3", "sm90_splitk_128x128x4x1_split2"]
)
def test_a_cluster_finishes_filters_that_come_in_eights(name: str) -> None:
    op = convolution((136, 9, 8), 88, has_residual=True, last_activation="relu")
    check(ALGORITHMS[name], op, precision="float16", capability=HOPPER, rows=3)


@pytest.mark.parametrize(("split", "times"), [(1, 2), (2, 2), (1, 3)])
@every_precision
def test_results_of_an_upsampled_map_are_repeated(precision: str, split: int, times: int) -> None:
    tile = "64x64x8x1" if precision == "float16" else "64x32x4x3"
    op = convolution(
        (520, 5, 7), 48, (1, 1), padding=(0, 0, 0, 0), activation="leaky", upsample=times
    )
    algorithm = ALGORITHMS[f"sm90_splitk_{tile}_split{split}"]
    check(algorithm, op, precision=precision, capability=HOPPER, margin=8)


def test_a_cluster_makes_a_detection_layer() -> None:
    op = detecting(6, scale_x_y=1.05, channels=512)
    options = {"capability": HOPPER, "floats": frozenset({op.out}), "rows": 9}
    name = "sm90_splitk_64x64x8x1_split2"
    check(ALGORITHMS[name], op, precision="float16", tolerance=2e-6, **options)


POOLED = [
    ("sm90_splitk_64x64x8x1_split1", (24, 8, 10), 72, {}),
    ("sm90_splitk_128x96x6x1_split3", (136, 9, 7), 88, {"activation": "relu"}),
    ("sm90_splitk_192x128x4x1_split1", (40, 12, 10), 68, {"has_residual": True}),
    ("sm90_splitk_64x64x8x1_split2", (136, 9, 8), 33, {"stride": (1, 2)}),
    ("sm90_direct_tiles_32x2x4_teams1", (16, 15, 23), 33, {}),
    ("sm90_direct_tiles_64x1x2_teams1", (40, 16, 23), 72, {"has_residual": True}),
]


@pytest.mark.parametrize(("name", "src", "filters", "options"), POOLED)
def test_the_cells_of_a_pool_meet_in_shared_memory(
    name: str,
    src: tuple[int, int, int],
    filters: int,
    options: dict[str, Any],
) -> None:
    op = convolution(src, filters, is_pooled=True, **{"activation": "leaky", **options})
    check(ALGORITHMS[name], op, precision="float16", capability=HOPPER, rows=3)


@pytest.mark.parametrize("precision", ["tf32", "float32"])
def test_floats_are_pooled(precision: str) -> None:
    op = convolution((24, 8, 10), 40, is_pooled=True, activation="leaky")
    name = "sm90_splitk_64x32x4x3_split2"
    check(ALGORITHMS[name], op, precision=precision, capability=HOPPER, rows=3)


@pytest.mark.parametrize(
    ("name", "src"),
    [
        ("sm90_splitk_64x64x8x1_split1", (136, 8, 10)),
        ("sm90_splitk_64x64x8x1_split2", (136, 8, 10)),
        ("sm90_direct_tiles_64x1x2_teams1", (40, 8, 14)),
    ],
)
@pytest.mark.parametrize("present", [1, 3])
def test_a_map_is_stored_besides_its_pool(
    name: str, src: tuple[int, int, int], present: int
) -> None:
    """The pool has the very values that pooling the stored map gives."""
    plain = convolution(src, 72, activation="leaky")
    height, width = src[1] // 2, src[2] // 2
    pool = MaxPool(Tensor(3, Shape(72, height, width)), plain.out, TILE)
    op = KeepingConv2d.of(plain, pool)
    problem, target = Problem(plain, 3), Target(3, "float16", HOPPER, 132)
    kept: dict[Tensor, Any] = {plain.out: None}
    options = {"margin": 8, "present": present}
    got = run(ALGORITHMS[name], target, op, problem.constants, problem.inputs, kept=kept, **options)
    expected = problem.expected()[:present]
    error = np.abs(kept[plain.out] - expected).max() / np.abs(expected).max()
    assert error < TOLERANCES["float16"]
    cells = kept[plain.out].reshape(present, 72, height, 2, width, 2)
    np.testing.assert_array_equal(got, cells.max(axis=(3, 5)))


TURNS = [
    *(("sm90_pingpong_128x64x8x1_teams2", name, "float16") for name in ("1x1", "3x3", "crooked")),
    ("sm90_pingpong_128x128x6x1_teams2", "3x3", "float16"),
    ("sm90_pingpong_128x128x6x1_teams2", "3x3", "tf32"),
]


@pytest.mark.parametrize(("name", "op", "precision"), TURNS)
def test_teams_that_take_turns_agree_with_the_definition(
    name: str, op: str, precision: str
) -> None:
    check(ALGORITHMS[name], OPS[op], precision=precision, capability=HOPPER, rows=9)


EVEN = [
    (
        "sm90_swapped_128_teams2",
        convolution((24, 9, 8), 100, activation="leaky", has_residual=True),
    ),
    ("sm90_swapped_128_teams2", convolution((72, 9, 7), 128, (1, 1), padding=(0, 0, 0, 0))),
    (
        "sm90_swapped_128_teams2",
        convolution((40, 9, 11), 248, stride=(2, 1), has_residual=True, last_activation="relu"),
    ),
    (
        "sm90_swapped_256_teams1",
        convolution((16, 9, 7), 200, activation="swish", has_residual=True),
    ),
]


@pytest.mark.parametrize(("name", "op"), EVEN, ids=[name for name, _ in EVEN])
def test_tiles_of_as_many_pixels_as_go_round_agree_with_the_definition(
    name: str, op: Conv2d
) -> None:
    check(ALGORITHMS[name], op, precision="float16", capability=HOPPER, rows=9)


def test_a_detection_layer_of_a_net_of_halves_is_of_floats() -> None:
    for name, op in (
        ("sm90_splitk_64x64x4x3_split1", OPS["detecting"]),
        ("sm90_pingpong_128x64x8x1_teams2", OPS["detecting"]),
        ("sm90_pingpong_128x64x8x1_teams2", detecting(6, raw=True, scale_x_y=2.0)),
    ):
        options = {"capability": HOPPER, "floats": frozenset({op.out}), "rows": 9}
        check(ALGORITHMS[name], op, precision="float16", tolerance=2e-6, **options)


PATCHES = [
    ("sm90_direct_tiles_32x2x2_teams3", (16, 15, 23), 48, 3, "float16"),
    ("sm90_direct_tiles_32x2x2_teams3", (16, 15, 23), 53, 3, "tf32"),
    ("sm90_direct_tiles_64x2x1_teams4", (40, 15, 23), 53, 3, "float16"),
    ("sm90_direct_tiles_32x2x2_teams3", (72, 15, 23), 48, 1, "float16"),
    ("sm90_direct_tiles_64x2x1_teams4", (40, 15, 23), 64, 1, "tf32"),
    ("sm90_direct_tiles_64x2x2_teams3", (64, 16, 23), 216, 1, "float16"),
]


@pytest.mark.parametrize(("name", "src", "filters", "size", "precision"), PATCHES)
def test_patches_agree_with_the_definition(
    name: str, src: tuple[int, int, int], filters: int, size: int, precision: str
) -> None:
    kinds = {"last_activation": "relu"} if size == 1 else {"activation": "leaky"}
    op = convolution(
        src, filters, (size, size), padding=(size // 2,) * 4, has_residual=True, **kinds
    )
    check(ALGORITHMS[name], op, precision=precision, capability=HOPPER, rows=9)


LINES = [
    ("sm90_lines_3x1_split1", (24, 9, 8), 72),
    ("sm90_lines_3x1_split2", (136, 5, 7), 44),
    ("sm90_lines_3x1_split4", (264, 11, 9), 40),
    ("sm90_lines_3x1_split3", (264, 9, 8), 140),  # blocks have one or two slices
    ("sm90_lines_3x1_split1", (136, 13, 13), 72),
    ("sm90_lines_3x1_split1", (32, 26, 3), 48),
    ("sm90_lines_3x1_split1", (16, 26, 5), 64),
]


@pytest.mark.parametrize(("name", "src", "filters"), LINES)
def test_lines_agree_with_the_definition(
    name: str, src: tuple[int, int, int], filters: int
) -> None:
    op = convolution(src, filters, has_residual=True, activation="leaky")
    options = {"precision": "float16", "capability": HOPPER, "rows": 3}
    check(ALGORITHMS[name], op, multiprocessors=36, **options)


LINE_SHAPES = [(c, 6, w) for c in (16, 32, 128) for w in range(100, 256, 4)]
LINE_SHAPES += [(c, side, side) for c in (16, 64, 512, 8192) for side in (1, 2, 13, 104, 208)]


def test_every_tile_of_lines_fits_into_shared_memory() -> None:
    """With one stage a block would wait for weights whose slot it has not yet released."""
    lines = [each for name, each in ALGORITHMS.items() if name.startswith("sm90_lines")]
    where = {"capability": HOPPER, "rows": 1, "margin": 0, "multiprocessors": 132}
    stages = set()
    for shape in LINE_SHAPES:
        op = convolution(shape, 64)
        target = target_for(op, precision="float16", floats=frozenset(), **where)
        for each in lines:
            if each.supports(target, op):
                tile = each.tile(target, op)
                stages.add(tile.stages)
                assert tile.shared_bytes <= MOST_SHARED
                assert tile.has_room
    assert min(stages) == 2


FIRST = {
    "7x7_pooled": convolution(
        (3, 37, 41),
        64,
        (7, 7),
        stride=(2, 2),
        padding=(3, 3, 3, 3),
        activation="leaky",
        is_pooled=True,
    ),
    "3x3": convolution((3, 21, 150), 32, activation="mish"),
    "3x3_pooled": convolution((3, 18, 37), 32, activation="leaky", is_pooled=True),
    "3x3_two_apart": convolution((3, 19, 151), 32, stride=(2, 2), activation="relu"),
    "3x3_of_halves": convolution((3, 9, 12), 16, padding=(0, 2, 1, 0)),
    "crooked": convolution((3, 30, 14), 64, (5, 4), stride=(3, 2), padding=(1, 2, 0, 3)),
}


@pytest.mark.parametrize("op", FIRST.values(), ids=FIRST)
@pytest.mark.parametrize(("room", "multiprocessors"), [(0, 1), (1, 1), (0, 132), (1, 132)])
def test_a_first_layer_reads_windows_where_they_overlap(
    op: Conv2d, room: int, multiprocessors: int
) -> None:
    """With room for a fourth value pixels begin on 8 bytes; blocks have fewer lines on a card."""
    options = {"precision": "float16", "capability": HOPPER, "rows": 3}
    check(
        *(ALGORITHMS["sm90_rgb_stem"], op),
        room=room,
        multiprocessors=multiprocessors,
        **options,
    )


@pytest.mark.parametrize(("rows", "lines"), [(1, 2), (2, 4), (3, 4), (4, 8), (64, 8)])
def test_a_first_layer_has_blocks_for_the_whole_card(rows: int, lines: int) -> None:
    """The first layer of resnet50@256 has 128 blocks for one picture instead of 32."""
    sides = {"stride": (2, 2), "padding": (3, 3, 3, 3), "activation": "leaky"}
    op = convolution((3, 256, 256), 64, (7, 7), is_pooled=True, **sides)
    target = Target(rows, "float16", HOPPER, 132)
    tile = ALGORITHMS["sm90_rgb_stem"].tile(target, op)
    assert tile.lines == lines


def opening(side: tuple[int, int], filters: int, kinds: tuple[str, str]) -> Chain:
    """A picture's first two convolutions."""
    first = convolution((3, *side), 32, activation=kinds[0])
    second = convolution((32, *side), filters, stride=(2, 2), activation=kinds[1])
    between = replace(second.src, index=4)
    return Chain(second.out, (first.writing(between), replace(second, src=between)))


def squeeze(side: tuple[int, int], kinds: tuple[str, str, str]) -> Chain:
    """A residual block: the second convolution adds what the first reads."""
    first = convolution((64, *side), 32, (1, 1), padding=(0, 0, 0, 0), activation=kinds[0])
    tail = {"activation": kinds[1], "residual": first.src, "last_activation": kinds[2]}
    second = convolution((32, *side), 64, **tail)
    between = replace(second.src, index=4)
    return Chain(second.out, (first.writing(between), replace(second, src=between)))


CHAINS = {
    "opening": opening((63, 45), 64, ("leaky", "mish")),
    "opening_of_one_line": opening((29, 34), 48, ("mish", "leaky")),
    "opening_that_is_wide": opening((31, 130), 56, ("relu", "linear")),
    "squeeze": squeeze((37, 21), ("leaky", "leaky", "linear")),
    "squeeze_of_one_block": squeeze((9, 5), ("mish", "swish", "relu")),
    "squeeze_of_whole_blocks": squeeze((48, 40), ("linear", "leaky", "mish")),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize(("multiprocessors", "present"), [(1, 2), (2, 2), (3, 1)])
def test_what_lies_between_two_convolutions_stays(
    chain: Chain, multiprocessors: int, present: int
) -> None:
    """Only the first rows may be present."""
    run_chain(chain, multiprocessors=multiprocessors, present=present)


def run_chain(
    chain: Chain, *, multiprocessors: int, present: int, writes_int8: bool = False
) -> None:
    """Compare a chain with its links, run one after the other."""
    rows, (first, second) = 2, chain.links
    scale = 1 / 64
    scales = {chain.out: scale} if writes_int8 else {}
    target = Target(rows, "float16", HOPPER, multiprocessors, scales=scales)
    assert sm90_fused.choose(target, chain)
    before, behind = Problem(first, rows), Problem(second, rows)
    if chain.src.shape.channels == 3:
        before.constants["weight"] *= np.float32(1.0003)  # as many bits as a float has
    before.constants["weight"] /= 8
    behind.constants["weight"] /= 8
    behind.inputs[second.src] = before.expected().astype(np.float16).astype(np.float32)
    if second.residual:
        behind.inputs[second.residual] = before.inputs[first.src]
    constants = {
        f"{number}.{name}": values
        for number, each in enumerate((before, behind))
        for name, values in each.constants.items()
    }
    step = Step(chain, sm90_fused.choose(target, chain))
    algorithm = SimpleNamespace(
        prepare=lambda target, op, constants: step.prepare(target, constants),
        workspace=lambda target, op: step.workspace(target),
        enqueue=lambda gpu, op: step.enqueue(gpu),
    )
    is_picture = chain.src.shape.channels == 3
    where = {"room": 1} if is_picture else {"margin": 8}
    got = run(algorithm, target, chain, constants, before.inputs, present=present, **where)
    expected = behind.expected()[:present]
    if writes_int8:
        rounded = np.clip(np.rint(expected / scale), -128, 127)
        assert np.abs(got - rounded).max() <= 1
        assert (got == rounded).mean() > 0.95
    else:
        assert np.abs(got - expected).max() <= 1.5e-3 * np.abs(expected).max()


FAMILIES = {
    "sm90_splitk_64x64x4x3_split1": ((24, 15, 23), 48),
    "sm90_splitk_64x64x8x1_split2": ((120, 9, 8), 48),
    "sm90_pingpong_128x64x8x1_teams2": ((24, 9, 8), 72),
    "sm90_swapped_128_teams2": ((24, 9, 8), 100),
    "sm90_direct_tiles_32x2x2_teams3": ((16, 15, 23), 48),
    "sm90_lines_3x1_split1": ((24, 5, 7), 48),
}


@pytest.mark.parametrize(("name", "sizes"), FAMILIES.items(), ids=FAMILIES)
def test_a_last_batch_has_fewer_rows(name: str, sizes: tuple[tuple[int, int, int], int]) -> None:
    op = convolution(*sizes, activation="leaky", has_residual=True)
    options = {"precision": "float16", "capability": HOPPER, "rows": 9}
    check(ALGORITHMS[name], op, present=1, multiprocessors=6, **options)


@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_results_lie_between_the_margins(precision: str) -> None:
    name = SMALL.get(precision, "sm90_splitk_64x32x4x3_split1")
    options = {"precision": precision, "capability": HOPPER, "margin": 8}
    check(ALGORITHMS[name], OPS["3x3"], **options)
