"""Every convolution algorithm of the CPU backend against loops in float64."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu import blas, conv
from engine.backends.cpu.conv import tiles
from engine.backends.cpu.conv.base import spans
from engine.backends.cpu.conv.unfused import Unfused
from engine.backends.cpu.workers import Workers
from engine.plan.activations import ACTIVATIONS
from engine.plan.ops import Chain, Constant, Conv2d, Tensor
from engine.plan.shapes import Shape, Window, window_count
from tests.tails import conv2d

ALGORITHMS = {
    module.__name__.rsplit(".", 1)[1]: module
    for module in (
        importlib.import_module(f"{conv.__name__}.{found.name}")
        for found in pkgutil.iter_modules(conv.__path__)
    )
    if hasattr(module, "prepare")
}


def convolution(
    shape: tuple[int, int, int],
    filters: int,
    size: int | tuple[int, int] = 3,
    *,
    pad: int | tuple[int, int, int, int] | None = None,
    stride: int | tuple[int, int] = 1,
    dilation: int | tuple[int, int] = 1,
    **options: Any,
) -> Conv2d:
    size, stride, dilation = _pair(size), _pair(stride), _pair(dilation)
    if pad is None:
        pad = max(size) // 2
    padding = (pad,) * 4 if isinstance(pad, int) else pad
    source = Shape(*shape)

    def extent(axis: int, cells: int) -> int:
        covered = dilation[axis] * (size[axis] - 1) + 1
        return window_count(cells, covered, stride[axis], padding[axis] + padding[axis + 2])

    grid = Shape(filters, extent(0, source.height), extent(1, source.width))
    channels = source.channels // options.get("groups", 1)
    return conv2d(
        Tensor(2, grid),
        Tensor(1, source),
        Constant("weight", (filters, channels, *size)),
        Constant("bias", (filters,)),
        stride=stride,
        padding=padding,
        dilation=dilation,
        **options,
    )


def choose(op: Conv2d, weight: np.ndarray, bias: np.ndarray, workers: Workers) -> Any:
    return conv.choose(op, {"weight": weight, "bias": bias}, workers)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


HALVES = Window((2, 2), (2, 2))

CASES = {
    "1x1": convolution((8, 5, 7), 6, 1),
    "1x1, many pixels": convolution((4, 40, 64), 8, 1, activation="leaky"),
    "1x1 stride 2": convolution((8, 7, 6), 6, 1, stride=2),
    "1x1 padded": convolution((3, 4, 4), 2, 1, pad=1),
    "1x1 of one cell": convolution((512, 1, 1), 10, 1),
    "1x1, many filters on a small map": convolution(
        (320, 11, 13), 256, 1, activation="leaky", residual=True
    ),
    "1x1 with a residual": convolution((8, 6, 6), 8, 1, residual=True, last_activation="leaky"),
    "3x3": convolution((5, 9, 8), 7, activation="leaky"),
    "3x3 of one cell": convolution((16, 1, 1), 8),
    "3x3, wide and flat": convolution((3, 1, 40), 4, (1, 5), pad=(0, 2, 0, 2)),
    "3x3 without padding": convolution((4, 8, 8), 3, pad=0),
    "3x3 stride 2": convolution((6, 11, 12), 5, stride=2, activation="relu"),
    "stride (2, 1)": convolution((4, 9, 9), 4, stride=(2, 1)),
    "stride (1, 3)": convolution((4, 9, 11), 4, stride=(1, 3)),
    "stride beyond the kernel": convolution((4, 11, 11), 4, 1, stride=3),
    "padding on two sides only": convolution((4, 6, 7), 4, pad=(0, 0, 1, 1)),
    "padding wider than the kernel": convolution((3, 4, 4), 4, pad=(4, 3, 5, 4)),
    "padding that no window reaches": convolution((4, 6, 6), 4, pad=(1, 1, 1, 1), stride=4),
    "dilation 2": convolution((4, 10, 9), 6, dilation=2, pad=2),
    "dilation (1, 3)": convolution((4, 10, 9), 6, dilation=(1, 3), pad=(1, 3, 1, 3)),
    "5x5": convolution((4, 10, 9), 6, 5),
    "kernel (3, 1)": convolution((4, 10, 9), 6, (3, 1), pad=(1, 0, 1, 0)),
    "kernel larger than the map": convolution((4, 2, 2), 6, 7, pad=3),
    "even kernel": convolution((4, 6, 6), 5, 2, pad=(0, 0, 1, 1)),
    "groups": convolution((12, 9, 8), 6, groups=3, activation="leaky"),
    "groups, pooled": convolution((12, 8, 8), 6, groups=3, activation="leaky", pool=HALVES),
    "depthwise": convolution((12, 9, 8), 12, groups=12, activation="leaky"),
    "depthwise, many channels": convolution((600, 5, 6), 600, groups=600, activation="relu6"),
    "depthwise, large": convolution((8, 70, 80), 8, groups=8, activation="leaky"),
    "depthwise stride 2": convolution((12, 9, 8), 12, groups=12, stride=2),
    "depthwise stride 2, even": convolution(
        (12, 12, 10), 12, groups=12, stride=2, pad=(0, 0, 1, 1)
    ),
    "depthwise stride 3": convolution((6, 12, 10), 6, groups=6, stride=3),
    "depthwise stride (1, 2)": convolution((6, 7, 9), 6, groups=6, stride=(1, 2)),
    "depthwise 5x5": convolution((12, 9, 8), 12, 5, groups=12),
    "depthwise dilated": convolution((6, 12, 11), 6, groups=6, dilation=2, pad=2),
    "depthwise with a residual": convolution((6, 7, 6), 6, groups=6, residual=True),
    "depthwise, pooled": convolution((6, 8, 6), 6, groups=6, pool=HALVES),
    "depthwise signed": convolution((6, 8, 6), 6, groups=6, signed=True),
    "two filters a channel": convolution((6, 7, 6), 12, groups=6),
    "signed": convolution((6, 7, 6), 4, signed=True),
    "signed 1x1": convolution((6, 7, 6), 4, 1, signed=True),
    "first layer": convolution((3, 40, 48), 16, activation="leaky"),
    "first layer stride 2": convolution((3, 41, 48), 8, stride=2, activation="leaky"),
    "first layer, pooled": convolution((3, 40, 48), 16, activation="leaky", pool=HALVES),
    "first layer, signed and dilated across": convolution(
        (3, 20, 52), 5, dilation=(1, 2), pad=(1, 2, 1, 2), signed=True
    ),
    "first layer, grey": convolution((1, 20, 24), 8, activation="leaky"),
    "2x2 pool": convolution((6, 12, 10), 8, activation="leaky", pool=HALVES),
    "2x2 pool, odd grid": convolution((6, 9, 11), 8, activation="leaky", pool=HALVES),
    "2x2 pool, stride 2": convolution((6, 17, 16), 8, stride=2, pool=HALVES),
    "2x2 pool of 1x1": convolution((6, 8, 8), 8, 1, pool=HALVES, activation="relu"),
    "2x2 pool after mish": convolution((4, 8, 8), 6, activation="mish", pool=HALVES),
    "2x2 pool and residual": convolution(
        (4, 8, 8), 6, activation="leaky", pool=HALVES, residual=True, last_activation="relu"
    ),
    "padded pool": convolution(
        (4, 13, 13), 6, activation="leaky", pool=Window((2, 2), (1, 1), (0, 0, 1, 1))
    ),
    "pool 3x3 / 2": convolution((4, 13, 12), 6, pool=Window((3, 3), (2, 2), (1, 1, 1, 1))),
    "pool with an empty window": convolution(
        (4, 4, 4), 6, pool=Window((1, 1), (1, 1), (1, 1, 1, 1))
    ),
    "residual and last activation": convolution(
        (5, 6, 7), 6, activation="leaky", residual=True, last_activation="relie"
    ),
    "many filters on a small map": convolution((130, 7, 7), 520, activation="leaky"),
    "many filters, residual": convolution((128, 7, 7), 512, residual=True),
    "many rows": convolution((32, 52, 60), 16, activation="leaky"),
    "many rows, pooled": convolution((32, 52, 60), 16, activation="leaky", pool=HALVES),
    "deep": convolution((96, 26, 26), 64, activation="leaky"),
    "deep, odd map": convolution((96, 27, 25), 64, activation="leaky"),
    "deep, pooled": convolution((96, 26, 24), 64, activation="leaky", pool=HALVES),
    "deep with a residual": convolution((64, 20, 20), 64, activation="leaky", residual=True),
    "deep, small map": convolution((128, 9, 10), 256, activation="leaky", residual=True),
    "deep, small map, pooled": convolution((128, 10, 9), 256, activation="leaky", pool=HALVES),
    "very deep": convolution((513, 7, 8), 512, activation="leaky", residual=True),
    "very deep, pooled": convolution((513, 8, 7), 512, activation="leaky", pool=HALVES),
} | {f"activation {name}": convolution((4, 6, 6), 6, activation=name) for name in ACTIVATIONS}


EXPECTED: dict[tuple[Conv2d, int], np.ndarray] = {}


@dataclass
class Problem:
    op: Conv2d
    rows: int = 2
    values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        random = np.random.default_rng(len(CASES) + self.op.src.shape.size)
        op = self.op
        fan_in = int(np.prod(op.weight.shape[1:]))
        self.src = random.normal(size=(self.rows, *op.src.shape.sides)).astype(np.float32)
        self.weight = (random.normal(size=op.weight.shape) / fan_in**0.5).astype(np.float32)
        self.bias = random.normal(size=len(self.weight)).astype(np.float32)
        self.residual = random.normal(size=(self.rows, *op.out.shape.sides)).astype(np.float32)

    def expected(self) -> np.ndarray:
        """Return the result by definition, which is computed once for equal problems."""
        key = self.op, self.rows
        if key not in EXPECTED:
            pairs = zip(self.src, self.residual, strict=True)
            EXPECTED[key] = np.stack([define(self, x, r) for x, r in pairs])
        return EXPECTED[key]

    def run(self, prepare: Any, workers: Workers, *, dtype: Any = np.float32) -> np.ndarray:
        """Run on NHWC arrays; return the output as NCHW."""
        src = np.ascontiguousarray(self.src.transpose(0, 2, 3, 1), dtype)
        residual = np.ascontiguousarray(self.residual.transpose(0, 2, 3, 1), dtype)
        return self.run_on(prepare, workers, src, residual, dtype=dtype, margin=0)

    def run_on(
        self, prepare: Any, workers: Workers, *arrays: np.ndarray, dtype: Any, margin: int
    ) -> np.ndarray:
        src, residual = arrays
        out = self.op.out.shape
        wide = np.full((self.rows, out.height, out.width, out.channels + 2 * margin), 7, dtype)
        into = wide[..., margin : margin + out.channels]
        kernel = prepare(self.op, self.weight.astype(dtype), self.bias.astype(dtype), workers)
        with workers.serial_blas(), np.errstate(all="ignore"):
            call = kernel.bind(src, into, residual if self.op.residual else None)
            call()
            first = into.copy()
            call()
        assert np.array_equal(first, into), "a second run differs"
        if margin:
            assert np.all(wide[..., :margin] == 7)
            assert np.all(wide[..., -margin:] == 7)
        return into.transpose(0, 3, 1, 2)


def define(problem: Problem, src: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Compute one sample in float64, as the docstring of ops.Conv2d says."""
    op = problem.op
    src = src.astype(np.float64)
    outside = 0.0
    if op.signed:
        src, outside = np.where(src > 0, 1.0, -1.0), -1.0
    top, left, bottom, right = op.padding
    padded = np.pad(src, ((0, 0), (top, bottom), (left, right)), constant_values=outside)
    weight = problem.weight.astype(np.float64)
    filters, depth = weight.shape[:2]
    grid = np.zeros(op.grid.sides)
    for y, x in itertools.product(range(op.grid.height), range(op.grid.width)):
        ys = y * op.stride[0] + op.dilation[0] * np.arange(op.kernel[0])
        xs = x * op.stride[1] + op.dilation[1] * np.arange(op.kernel[1])
        cells = padded[:, ys][:, :, xs]
        for group in range(op.groups):
            mine = slice(group * filters // op.groups, (group + 1) * filters // op.groups)
            inputs = cells[group * depth : (group + 1) * depth]
            grid[mine, y, x] = (weight[mine] * inputs).sum(axis=(1, 2, 3))
    grid += problem.bias.astype(np.float64)[:, None, None]
    values = ACTIVATIONS[op.activation].numpy(grid)
    if op.pool is not None:
        values = pool(values, op.pool, op.out.shape)
    if op.residual is not None:
        values = ACTIVATIONS[op.last_activation].numpy(values + residual)
    return values


def pool(grid: np.ndarray, window: Window, shape: Shape) -> np.ndarray:
    out = np.full(shape.sides, -np.finfo(np.float32).max, np.float64)
    for y, x in itertools.product(range(shape.height), range(shape.width)):
        ys = y * window.stride[0] - window.padding[0] + np.arange(window.size[0])
        xs = x * window.stride[1] - window.padding[1] + np.arange(window.size[1])
        ys = ys[(ys >= 0) & (ys < grid.shape[1])]
        xs = xs[(xs >= 0) & (xs < grid.shape[2])]
        if len(ys) and len(xs):
            out[:, y, x] = grid[:, ys][:, :, xs].max(axis=(1, 2))
    return out


SUPPORTED = [
    pytest.param(module, op, id=f"{algorithm}: {case}")
    for algorithm, module in ALGORITHMS.items()
    for case, op in CASES.items()
    if module.supports(op)
]


@pytest.fixture(scope="module")
def workers():
    with_two = Workers(2)
    yield with_two
    with_two.close()


def assert_near(actual: np.ndarray, expected: np.ndarray, *, within: float) -> None:
    """Compare relative to the largest value, except the maximum over empty windows."""
    real = np.abs(expected) < 1e30
    assert np.array_equal(np.abs(actual) < 1e30, real)
    scale = max(1.0, np.abs(expected[real]).max(initial=0))
    assert np.abs(actual - expected)[real].max(initial=0) <= within * scale


@pytest.mark.parametrize(("module", "op"), SUPPORTED)
def test_agrees_with_the_definition(module, op, workers):
    problem = Problem(op)
    assert_near(problem.run(module.prepare, workers), problem.expected(), within=1e-5)


@pytest.mark.parametrize("op", [pytest.param(op, id=case) for case, op in CASES.items()])
def test_the_chosen_algorithm_agrees_on_slices_of_wider_maps(op, workers):
    problem = Problem(op)
    src, residual = (
        np.full((*array.shape[:1], *array.shape[2:], array.shape[1] + 5), np.nan, np.float32)
        for array in (problem.src, problem.residual)
    )
    src[..., 2:-3] = problem.src.transpose(0, 2, 3, 1)
    residual[..., 2:-3] = problem.residual.transpose(0, 2, 3, 1)
    arrays = src[..., 2:-3], residual[..., 2:-3]
    actual = problem.run_on(choose, workers, *arrays, dtype=np.float32, margin=3)
    assert_near(actual, problem.expected(), within=1e-5)


@pytest.mark.parametrize("op", [pytest.param(op, id=case) for case, op in CASES.items()])
def test_float64_program_keeps_double_precision(op, workers):
    problem = Problem(op)
    actual = problem.run(choose, workers, dtype=np.float64)
    assert actual.dtype == np.float64
    assert_near(actual, problem.expected(), within=1e-12)


@pytest.mark.parametrize(("module", "op"), SUPPORTED)
def test_results_do_not_depend_on_the_number_of_threads(module, op):
    problem = Problem(op)
    answers = []
    for count in (1, 2, 3):
        workers = Workers(count)
        answers.append(problem.run(module.prepare, workers).copy())
        workers.close()
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])


@pytest.mark.parametrize(("unpacked", "parts"), [(0, 1), (100**3, 4), (9 * 128 * 40, 8)])
def test_filters_are_divided_when_the_blas_need_not_pack(monkeypatch, workers, unpacked, parts):
    monkeypatch.setattr(blas, "unpacked_products", lambda: unpacked)
    problem = Problem(CASES["deep, small map"])
    module = ALGORITHMS["winograd_whole_map"]
    assert len(module.prepare(problem.op, problem.weight, problem.bias, workers).parts) == parts
    assert_near(problem.run(module.prepare, workers), problem.expected(), within=1e-5)


def test_source_may_be_stored_channels_first(workers):
    """Test a transposed view, as a program may pass of its NCHW input."""
    problem = Problem(CASES["first layer, pooled"])
    src, residual = (a.transpose(0, 2, 3, 1) for a in (problem.src, problem.residual))
    actual = problem.run_on(choose, workers, src, residual, dtype=np.float32, margin=0)
    assert_near(actual, problem.expected(), within=1e-5)


@pytest.mark.parametrize(
    ("total", "longest", "lengths"),
    [
        (5, 9, [5]),
        (5, 0, [1, 1, 1, 1, 1]),
        (13, 4, [3, 3, 3, 4]),
        (26, 4, [3, 3, 3, 4, 3, 3, 3, 4]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_two_threads_have_equal_work(total, longest, lengths):
    cut = spans(total, longest)
    assert [last - first for first, last in cut] == lengths
    assert [first for first, _ in cut] == [0, *(last for _, last in cut[:-1])]


def test_an_overlapping_pool_is_not_fused(workers):
    op = CASES["padded pool"]
    problem = Problem(op)
    assert isinstance(choose(op, problem.weight, problem.bias, workers), Unfused)


def chain_of(*shapes: Conv2d) -> tuple[Chain, dict[str, np.ndarray]]:
    """Return the convolutions as a chain, each with weights of its own."""
    links: list[Conv2d] = []
    constants: dict[str, np.ndarray] = {}
    for number, op in enumerate(shapes):
        problem = Problem(op, rows=1)
        weight, bias = (
            replace(each, name=f"{each.name} {number}") for each in (op.weight, op.bias)
        )
        constants |= {weight.name: problem.weight, bias.name: problem.bias}
        src = links[-1].out if links else op.src
        assert src.shape == op.src.shape
        out = replace(op.out, index=10 + number)
        links.append(replace(op.writing(out), src=src, weight=weight, bias=bias))
    return Chain(links[-1].out, tuple(links)), constants


CHAINS = {
    "in blocks": chain_of(
        convolution((8, 64, 60), 48, 1, activation="leaky"),
        convolution((48, 64, 60), 48, groups=48, activation="leaky"),
        convolution((48, 64, 60), 8, 1, residual=True, last_activation="relu"),
    ),
    "in blocks, stride 2": chain_of(
        convolution((4, 121, 131), 24, 1, activation="relu6"),
        convolution((24, 121, 131), 24, 5, groups=24, stride=2, activation="leaky"),
        convolution((24, 61, 66), 300, 1),
    ),
    "worth two threads": chain_of(
        convolution((96, 30, 31), 96, groups=96, activation="leaky", pad=(0, 0, 2, 2)),
        convolution((96, 30, 31), 255, 1, activation="logistic"),
    ),
}


@pytest.mark.parametrize(("chain", "constants"), CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("margin", [0, 3])
def test_a_chain_equals_its_convolutions_with_any_number_of_threads(chain, constants, margin):
    random = np.random.default_rng(1)
    maps = {
        tensor: random.normal(
            size=(2, *tensor.shape.sides[1:], tensor.shape.channels + 2 * margin)
        ).astype(np.float32)
        for link in chain.links
        for tensor in (*link.reads, link.out)
    }
    inner = slice(margin, -margin or None)
    answers = []
    for count in (1, 2, 3):
        workers = Workers(count)
        with workers.serial_blas():
            for op in (*chain.links, chain) if count == 1 else (chain,):
                residual = None if op.residual is None else maps[op.residual][..., inner]
                kernel = conv.choose(op, constants, workers)
                kernel(maps[op.src][..., inner], maps[op.out][..., inner], residual)
                answers.append(maps[op.out].copy())
        workers.close()
    *_, separate, one, two, three = answers
    assert_near(one, separate, within=1e-5)
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)
    if margin:
        assert np.array_equal(one[..., :margin], separate[..., :margin]), "written outside"


def test_every_algorithm_has_cases():
    cases = {param.id.partition(":")[0] for param in SUPPORTED}
    assert cases == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (convolution((1024, 13, 13), 256, 1), "pointwise"),
        (convolution((96, 40, 40), 96, groups=96), "depthwise"),
        (convolution((128, 52, 52), 256, stride=2), "im2col"),
        (convolution((3, 416, 416), 16, pool=HALVES, activation="leaky"), "unfolded_rows"),
        (convolution((16, 208, 208), 32, pool=HALVES, activation="leaky"), "winograd"),
        (convolution((64, 52, 52), 128, pool=HALVES, activation="leaky"), "winograd"),
        (convolution((32, 128, 128), 24), "winograd"),
        (convolution((16, 128, 128), 16), "unfolded_rows"),
        (convolution((80, 10, 10), 80), "winograd"),
        (convolution((512, 7, 7), 512), "winograd_whole_map"),
        (convolution((384, 26, 26), 256), "winograd_whole_map"),
        (convolution((512, 13, 13), 1024), "winograd_whole_map"),
        (convolution((1024, 13, 13), 1024), "filter_parallel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_algorithm_chosen_for_shapes_of_real_networks(op, expected):
    fitting = (module for module in conv.FAST if module.supports(op))
    assert next(fitting, ALGORITHMS["im2col"]) is ALGORITHMS[expected]


def test_heavy_weights_have_smaller_tiles(workers):
    for name, tiling in {"deep, small map": tiles.FOUR, "very deep": tiles.TWO}.items():
        problem = Problem(CASES[name])
        module = ALGORITHMS["winograd_whole_map"]
        assert module.prepare(problem.op, problem.weight, problem.bias, workers).tiling is tiling


@pytest.mark.parametrize("tiling", [tiles.FOUR, tiles.TWO])
@pytest.mark.parametrize("sides", [(1000, 3), (64, 300), (5, 900)])
def test_products_that_transform_weights_are_too_small_for_threads(monkeypatch, sides, tiling):
    """OpenBLAS uses one thread for as many multiplications."""
    product, sizes = np.matmul, []

    def counted(matrix, values):
        sizes.append(matrix.size * values.shape[-1])  # each matrix is a product of its own
        return product(matrix, values)

    weight = np.random.default_rng(0).normal(size=(*sides, 3, 3)).astype(np.float32)
    monkeypatch.setattr(np, "matmul", counted)
    found = tiling.transformed(weight)
    assert max(sizes) <= 65536 * 4
    g = tiling._matrices()[0]
    expected = np.einsum("pi,ncij,qj->pqcn", g, weight.astype(np.float64), g)
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-6, atol=1e-7)
