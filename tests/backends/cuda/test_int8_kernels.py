"""The convolutions of 8-bit integers, their own text run on the CPU, against exact sums."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from engine.backends.cuda.conv import ALGORITHMS, implicit_gemm
from engine.backends.cuda.conv.algorithm import KeepingConv2d
from engine.backends.cuda.conv.sm90_splitk import SplitK
from engine.backends.cuda.conv.tensor_cores import HOPPER
from engine.backends.cuda.ops.target import Target
from engine.plan import int8
from engine.plan.activations import ACTIVATIONS
from engine.plan.ops import Conv2d, MaxPool, Tensor
from engine.plan.shapes import Shape, Window
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.tensor_host import run
from tests.backends.cuda.test_mma_kernels import Problem as HalvesProblem
from tests.backends.cuda.test_mma_kernels import convolution, detecting, yolo_output
from tests.backends.cuda.test_sm90_kernels import opening, run_chain

Array = NDArray[Any]

pytestmark = [pytest.mark.slow, needs_gxx]

SMALL = "implicit_gemm_64x32x6_split1"
EXACT = {"linear", "relu", "leaky"}  # the kernels round no result of these activations


@dataclass
class Problem:
    """Random integers for a convolution, and what it makes of them, value by value."""

    op: Conv2d
    rows: int
    writes: str = "int8"
    inputs: dict[Tensor, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    scales: dict[Tensor, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        random, op = np.random.default_rng(3), self.op
        is_float = self.writes != "int8"
        for number, each in enumerate(op.reads):
            shape = (self.rows, *each.shape.sides)
            if is_float and each == op.residual:
                self.inputs[each] = random.standard_normal(shape).astype(np.float16)
            else:
                self.inputs[each] = random.integers(-127, 128, shape, np.int8)
                self.scales[each] = float(np.float32(0.01 + number / 50))
        weight = random.standard_normal(op.weight.shape, np.float32)
        self.constants["weight"] = weight * random.uniform(0.5, 2, (len(weight), 1, 1, 1))
        self.constants["weight"] = self.constants["weight"].astype(np.float32)
        if op.bias:
            self.constants["bias"] = random.standard_normal(op.bias.shape, np.float32)
        if not is_float:
            self.scales[op.out] = float(np.float32(np.abs(self.values()).max() / 120))

    def target(self, **options: Any) -> Target:
        op = self.op
        touched = {*op.reads, op.out}
        floats = touched & {op.out, op.residual} if self.writes == "float32" else frozenset()
        facts = {"scales": self.scales, "floats": frozenset(floats)}
        target = Target(self.rows, "int8", **facts, **options)
        crooked = {each for each in touched if each.shape.channels * target.bytes_of(each) % 16}
        return replace(target, misaligned=frozenset(crooked))

    def values(self) -> Array:
        """Return the results as float32, before they are rounded to a type."""
        op, single = self.op, np.float32
        weight, scales = int8.quantise_weights(self.constants["weight"])
        top, left, bottom, right = op.padding
        padded = np.pad(self.inputs[op.src], ((0, 0), (0, 0), (top, bottom), (left, right)))
        reach = [(k - 1) * d + 1 for k, d in zip(op.kernel, op.dilation, strict=True)]
        windows = sliding_window_view(padded, reach, axis=(2, 3))[
            :, :, :: op.stride[0], :: op.stride[1], :: op.dilation[0], :: op.dilation[1]
        ]
        factors = windows.astype(np.float64), weight.astype(np.float64)  # their sums are exact
        sums = np.einsum("bchwij,ncij->bnhw", *factors, optimize=True)
        factor = int8.factors(self.scales[op.src], scales)[:, None, None].astype(np.float64)
        bias = self.constants.get("bias", np.zeros(len(weight), single))[:, None, None]
        x = (sums.astype(single) * factor + bias).astype(single)
        x = np.asarray(ACTIVATIONS[op.activation].numpy(x), single)
        if op.pool:
            x = sliding_window_view(x, op.pool.size, axis=(2, 3))[:, :, ::2, ::2].max(axis=(4, 5))
        if op.residual:
            scale = self.scales.get(op.residual, 1.0)
            x = (self.inputs[op.residual].astype(np.float64) * scale + x).astype(single)
        x = np.asarray(ACTIVATIONS[op.last_activation].numpy(x), single)
        if op.yolo:
            return yolo_output(op.yolo, x.astype(np.float64)).astype(single)
        if op.upsample:
            x = x.repeat(op.upsample.stride, axis=2).repeat(op.upsample.stride, axis=3)
        return x


def check(
    name: str,
    op: Conv2d,
    *,
    rows: int = 2,
    writes: str = "int8",
    margin: int = 0,
    present: int | None = None,
    capability: tuple[int, int] = HOPPER,
    multiprocessors: int = 2,
) -> None:
    problem = Problem(op, rows, writes)
    target = problem.target(capability=capability, multiprocessors=multiprocessors)
    algorithm = ALGORITHMS[name]
    assert algorithm.can_run(target, op), name
    where = {"margin": margin, "present": present}
    got = run(algorithm, target, op, problem.constants, problem.inputs, **where)  # type: ignore[arg-type]
    assert_right(problem, got, problem.values()[:present], name)


def assert_right(problem: Problem, got: Array, x: Array, name: str) -> None:
    """Compare results with `x`, the values before they are rounded to the type of results."""
    op, writes = problem.op, problem.writes
    is_exact = {op.activation, op.last_activation} <= EXACT and op.yolo is None
    if writes == "int8":
        scaled = x.astype(np.float64) * int8.inverse(problem.scales[op.out])
        expected = np.clip(np.rint(scaled), -128, 127)
        np.testing.assert_allclose(got, expected, rtol=0, atol=0 if is_exact else 1, err_msg=name)
        assert (got == expected).mean() > 0.99, name
    else:
        tolerance = {"float16": 1e-3, "float32": 1e-6 if is_exact else 1e-3}[writes]
        largest = tolerance * np.abs(x).max()
        np.testing.assert_allclose(got, x, rtol=0, atol=largest, err_msg=name)


WHOLE = {
    "1x1": convolution((80, 5, 7), 48, (1, 1), padding=(0, 0, 0, 0), activation="swish"),
    "3x3": convolution((32, 9, 8), 80, activation="leaky", has_residual=True),
    "stride_2": convolution(
        (16, 9, 7), 48, stride=(2, 2), has_residual=True, last_activation="relu"
    ),
    "mish": convolution((48, 9, 8), 64, activation="mish", has_residual=True),
    "crooked": convolution((144, 9, 11), 48, (5, 2), stride=(1, 3), padding=(2, 0, 1, 1)),
}


@pytest.mark.parametrize("op", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("writes", ["int8", "float16", "float32"])
def test_a_block_for_each_tile_agrees_with_the_definition(op: Conv2d, writes: str) -> None:
    check("sm90_splitk_64x64x4x3_split1", op, writes=writes)


@pytest.mark.parametrize("split", [2, 6])
@pytest.mark.parametrize("writes", ["int8", "float16"])
def test_a_cluster_shares_the_sum_over_k(split: int, writes: str) -> None:
    op = convolution((400, 5, 7), 48, has_residual=True, activation="leaky")
    check(f"sm90_splitk_64x32x8x1_split{split}", op, writes=writes)


@pytest.mark.parametrize("is_pooled", [True, False])
def test_every_column_of_a_tile_has_a_bias(is_pooled: bool) -> None:
    """The kernels read them all, also beyond the filters."""
    problem = Problem(convolution((400, 6, 8), 48, is_pooled=is_pooled), 1, "int8")
    target = problem.target(capability=HOPPER, multiprocessors=2)
    every = [each for each in ALGORITHMS.values() if isinstance(each, SplitK)]
    able = [each for each in every if each.can_run(target, problem.op)]
    for algorithm in able:
        bias = algorithm.prepare(target, problem.op, problem.constants)["bias"]
        assert len(bias) == -(-48 // algorithm.columns) * algorithm.columns, algorithm.name
    assert {each.split for each in able} >= {1, 2, 3, 4}


@pytest.mark.parametrize("split", [1, 2])
def test_results_of_an_upsampled_map_are_repeated(split: int) -> None:
    op = convolution((1040, 5, 7), 48, (1, 1), padding=(0, 0, 0, 0), upsample=2)
    check(f"sm90_splitk_64x64x8x1_split{split}", op, margin=16)


@pytest.mark.parametrize("split", [1, 2])
def test_a_map_of_bytes_is_stored_besides_its_pool(split: int) -> None:
    plain = convolution((272, 8, 10), 80, activation="leaky")
    pool = MaxPool(Tensor(3, Shape(80, 4, 5)), plain.out, Window((2, 2), (2, 2)))
    op, problem = KeepingConv2d.of(plain, pool), Problem(plain, 2)
    problem.scales[op.out] = problem.scales[plain.out]
    target = problem.target(capability=HOPPER, multiprocessors=132)
    name, kept = f"sm90_splitk_64x64x8x1_split{split}", dict[Tensor, Any]({plain.out: None})
    assert ALGORITHMS[name].can_run(target, op)
    got = run(ALGORITHMS[name], target, op, problem.constants, problem.inputs, kept=kept)
    assert_right(problem, kept[plain.out], problem.values(), name)
    cells = kept[plain.out].reshape(2, 80, 4, 2, 5, 2)
    np.testing.assert_array_equal(got, cells.max(axis=(3, 5)))


TURNS = [
    ("sm90_splitk_128x96x6x1_split1", "3x3", "int8"),
    ("sm90_splitk_192x128x4x1_split1", "3x3", "float16"),
    ("sm90_pingpong_128x64x8x1_teams2", "1x1", "int8"),
    ("sm90_pingpong_128x64x8x1_teams2", "3x3", "float32"),
    ("sm90_pingpong_128x64x8x1_teams2", "mish", "int8"),
    ("sm90_pingpong_128x64x8x1_teams2", "crooked", "float16"),
    ("sm90_pingpong_128x128x6x1_teams2", "3x3", "int8"),
]


@pytest.mark.parametrize(("name", "op", "writes"), TURNS)
def test_every_tile_agrees_with_the_definition(name: str, op: str, writes: str) -> None:
    check(name, WHOLE[op], writes=writes, rows=9)


SWAPPED = {
    "residual": convolution((32, 9, 8), 112, activation="leaky", has_residual=True),
    "pointwise": convolution((80, 9, 7), 128, (1, 1), padding=(0, 0, 0, 0)),
    "stride_2": convolution(
        (48, 9, 11), 240, stride=(2, 1), has_residual=True, last_activation="relu"
    ),
}


@pytest.mark.parametrize("op", SWAPPED.values(), ids=SWAPPED)
@pytest.mark.parametrize("writes", ["int8", "float16"])
def test_filters_as_rows_agree_with_the_definition(op: Conv2d, writes: str) -> None:
    check("sm90_swapped_128_teams2", op, writes=writes, rows=9)


def test_filters_as_rows_of_two_warpgroups() -> None:
    op = convolution((16, 9, 7), 208, activation="swish", has_residual=True)
    check("sm90_swapped_256_teams1", op, rows=9)


PATCHES = [
    ("sm90_direct_tiles_32x2x2_teams3", (16, 15, 23), 48, 3),
    ("sm90_direct_tiles_64x2x1_teams4", (48, 15, 23), 64, 3),
    ("sm90_direct_tiles_32x2x2_teams3", (144, 15, 23), 48, 1),
]


@pytest.mark.parametrize(("name", "src", "filters", "size"), PATCHES)
def test_patches_agree_with_the_definition(
    name: str, src: tuple[int, int, int], filters: int, size: int
) -> None:
    op = convolution(
        src, filters, (size, size), padding=(size // 2,) * 4, has_residual=True, activation="leaky"
    )
    check(name, op, rows=9)


@pytest.mark.parametrize(
    "name", ["sm90_splitk_64x64x8x1_split2", "sm90_pingpong_128x64x8x1_teams2", SMALL]
)
def test_a_detection_layer_is_computed_from_integers(name: str) -> None:
    op = detecting(75, scale_x_y=1.05, channels=1024)
    check(name, op, writes="float32", rows=9)


GEMMS = {
    "16_channels": convolution((16, 7, 9), 32, activation="leaky"),
    "k_of_no_whole_step": convolution((48, 6, 7), 48, activation="mish"),
    "rare": convolution((32, 6, 7), 64, activation="elu", last_activation="hardtan"),
    "dilated": convolution((16, 9, 8), 48, dilation=(2, 3), padding=(2, 3, 1, 2)),
    "crooked": convolution((16, 9, 11), 32, (5, 2), stride=(2, 3), padding=(2, 0, 1, 1)),
    "without_bias": convolution((16, 5, 6), 16, has_bias=False),
    "pooled": convolution((32, 9, 7), 80, activation="leaky", is_pooled=True),
    "everything": convolution(
        (48, 9, 7), 80, stride=(2, 1), activation="leaky", has_residual=True, last_activation="relu"
    ),
}


@pytest.mark.parametrize("op", GEMMS.values(), ids=GEMMS)
@pytest.mark.parametrize("capability", [(7, 5), (8, 0)], ids=str)
def test_implicit_gemm_agrees_with_the_definition(op: Conv2d, capability: tuple[int, int]) -> None:
    check(SMALL, op, capability=capability)


@pytest.mark.parametrize("writes", ["float16", "float32"])
@pytest.mark.parametrize("filters", [255, 80])
def test_implicit_gemm_writes_any_number_of_floats(writes: str, filters: int) -> None:
    op = convolution((64, 5, 6), filters, (1, 1), padding=(0, 0, 0, 0), has_residual=True)
    check(SMALL, op, writes=writes, capability=(8, 0))


@pytest.mark.parametrize("split", [2, 4])
def test_a_split_sum_is_added_up(split: int) -> None:
    op = convolution((256, 5, 6), 48, activation="leaky")
    check(f"implicit_gemm_64x32x6_split{split}", op, capability=(8, 0), rows=3)


@pytest.mark.parametrize("name", [each.name for each in implicit_gemm.ALGORITHMS[::4]])
def test_every_tile_of_implicit_gemm_agrees(name: str) -> None:
    op = convolution((32, 9, 8), 144, activation="leaky", has_residual=True)
    if ALGORITHMS[name].supports(Problem(op, 2).target(capability=(8, 0), multiprocessors=2), op):
        check(name, op, capability=(8, 0))


def test_results_lie_between_the_margins_of_a_last_batch() -> None:
    for name in ("sm90_splitk_64x64x4x3_split1", "sm90_pingpong_128x64x8x1_teams2"):
        check(name, WHOLE["3x3"], rows=9, margin=16, present=3)


def test_what_does_not_begin_on_16_bytes_is_refused() -> None:
    problem = Problem(WHOLE["3x3"], 2)
    target = problem.target(capability=HOPPER, multiprocessors=2)
    crooked = replace(target, misaligned=frozenset({problem.op.out}))
    name = "sm90_splitk_64x64x4x3_split1"
    assert ALGORITHMS[name].can_run(target, problem.op)
    assert not ALGORITHMS[name].can_run(crooked, problem.op)


ROUNDED = [
    ("few_channels_32", convolution((3, 9, 14), 32, activation="leaky")),
    ("few_channels_64", convolution((3, 9, 14), 48, stride=(2, 2), activation="mish")),
    ("few_channels_32", convolution((3, 18, 14), 32, activation="relu", is_pooled=True)),
    (SMALL, convolution((24, 9, 8), 48, activation="leaky")),
    ("sm90_swapped_128_teams2", convolution((24, 9, 8), 112, activation="leaky")),
    ("sm90_rgb_stem", convolution((3, 21, 150), 32, activation="mish")),
    ("sm90_rgb_stem", convolution((3, 18, 37), 32, activation="leaky", is_pooled=True)),
    (
        "sm90_rgb_stem",
        convolution((3, 37, 41), 64, (7, 7), stride=(2, 2), padding=(3,) * 4, is_pooled=True),
    ),
]


@pytest.mark.parametrize(("name", "op"), ROUNDED)
def test_sums_of_halves_are_rounded_to_integers(name: str, op: Conv2d) -> None:
    problem = HalvesProblem(op, 9 if "swapped" in name else 2)
    expected = problem.expected()
    scale = float(np.float32(np.abs(expected).max() / 120))
    facts = {"capability": HOPPER, "multiprocessors": 2, "scales": {op.out: scale}}
    target = Target(problem.rows, "float16", **facts)  # type: ignore[arg-type]
    assert ALGORITHMS[name].can_run(target, op)
    got = run(ALGORITHMS[name], target, op, problem.constants, problem.inputs)
    rounded = np.clip(np.rint(expected / scale), -128, 127)
    assert np.abs(got - rounded).max() <= 1
    assert (got == rounded).mean() > 0.95


@pytest.mark.parametrize("side", [(63, 45), (31, 130)], ids=str)
def test_the_first_two_convolutions_write_integers(side: tuple[int, int]) -> None:
    chain = opening(side, 64, ("leaky", "mish"))
    run_chain(chain, multiprocessors=2, present=2, writes_int8=True)
