"""Small test cases of every op, with odd sizes and all options, for any device and layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.plan import ops
from engine.plan.activations import ACTIVATIONS
from engine.plan.ops import ConcatPart, Constant, Tensor
from engine.plan.shapes import Shape, Window, window_count
from tests.tails import conv2d

Array = NDArray[Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

_indices = count(1)


@dataclass(frozen=True, eq=False)
class Case:
    """One op with its inputs; compared by identity, so that results can be cached per case."""

    name: str
    op: ops.Op
    draw: Draw
    constants: Mapping[str, Array] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return f"{type(self.op).__name__}-{self.name}"

    def inputs(self, sequences: int) -> dict[Tensor, Array]:
        """Return float32 values of every tensor that the op reads."""
        rng = np.random.default_rng(len(self.name))
        return {
            tensor: self.draw(rng, (tensor.steps * sequences, *tensor.shape.sides)).astype("f4")
            for tensor in dict.fromkeys(self.op.reads)
        }


def tensor(channels: int, height: int = 1, width: int = 1, *, steps: int = 1) -> Tensor:
    return Tensor(next(_indices), Shape(channels, height, width), steps)


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def wide(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw values of both signs, some so large that exponentials saturate."""
    return rng.standard_normal(shape) * rng.choice([1, 30], shape)


def few(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw from a few values, so that many are equal."""
    return rng.integers(-2, 3, shape).astype(float)


def broken(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    values = rng.standard_normal(shape)
    spoilt = rng.choice([np.nan, np.inf, -np.inf, 0], shape, p=[0.1, 0.1, 0.1, 0.7])
    spoilt.flat[0] = np.nan
    return np.where(spoilt == 0, values, spoilt)


CASES: dict[type[ops.Op], list[Case]] = {}


def add_case(name: str, op: ops.Op, draw: Draw = normal, **constants: Array) -> None:
    CASES.setdefault(type(op), []).append(Case(name, op, draw, constants))


def random_constant(name: str, *shape: int) -> tuple[Constant, Array]:
    rng = np.random.default_rng(sum(shape))
    return Constant(name, shape), rng.standard_normal(shape).astype("f4")


def all_cases() -> list[Case]:
    return [case for cases in CASES.values() for case in cases]


def missing_pass(case: Case, passes: Sequence[str]) -> str | None:
    """Return the pass that creates such an op if it is not among `passes`, else None."""
    makers = {
        "fuse_pool": getattr(case.op, "pool", None) is not None,
        "fuse_upsample": getattr(case.op, "upsample", None) is not None,
        "chain_convolutions": isinstance(case.op, ops.Chain),
    }
    return next((name for name, makes in makers.items() if makes and name not in passes), None)


# ---------------------------------------------------------------- sums of products


def convolution(
    name: str,
    src: tuple[int, int, int],
    filters: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    bias: bool = True,
    **options: Any,
) -> None:
    source = tensor(*src)
    weight, weights = random_constant(
        "weight", filters, src[0] // options.get("groups", 1), *kernel
    )
    if options.get("signed"):  # weights are plus or minus one number for each filter
        weights = np.sign(weights) * abs(weights).mean(axis=(1, 2, 3), keepdims=True)
    constants = {"weight": weights}
    if bias:
        options["bias"], constants["bias"] = random_constant("bias", filters)
    stride, dilation = options.get("stride", (1, 1)), options.get("dilation", (1, 1))
    top, left, bottom, right = options.get("padding", (0, 0, 0, 0))
    height = window_count(src[1], dilation[0] * (kernel[0] - 1) + 1, stride[0], top + bottom)
    width = window_count(src[2], dilation[1] * (kernel[1] - 1) + 1, stride[1], left + right)
    out = tensor(filters, height, width)
    add_case(name, conv2d(out, source, weight, **options), **constants)


SAME = {"padding": (1, 1, 1, 1)}
HALVE = Window((2, 2), (2, 2))

convolution("3x3", (3, 7, 5), 4, **SAME)
convolution("3x3_without_bias", (3, 7, 5), 4, bias=False, **SAME)
convolution("3x3_no_padding", (2, 6, 9), 3)
convolution("3x3_stride_2", (5, 9, 11), 6, stride=(2, 2), activation="leaky", **SAME)
convolution("3x3_stride_2_even", (5, 8, 10), 6, stride=(2, 2), **SAME)
convolution("3x3_many_channels", (33, 5, 6), 35, activation="leaky", **SAME)
convolution("3x3_mish", (16, 6, 6), 16, activation="mish", **SAME)
convolution("1x1", (7, 5, 3), 9, (1, 1), activation="leaky")
convolution("1x1_one_cell", (7, 1, 1), 9, (1, 1), activation="logistic")
convolution("1x1_stride_2", (7, 5, 7), 9, (1, 1), stride=(2, 2))
convolution("1x1_stride_y_2", (4, 5, 7), 3, (1, 1), stride=(2, 1))
convolution("1x1_padding", (4, 3, 5), 3, (1, 1), padding=(1, 1, 1, 1))
convolution("5x5", (3, 8, 7), 2, (5, 5), padding=(2, 2, 2, 2), activation="swish")
convolution("7x7_stride_2", (3, 13, 11), 4, (7, 7), stride=(2, 2), padding=(3, 3, 3, 3))
convolution("8x8", (3, 9, 12), 2, (8, 8), stride=(1, 2), padding=(3, 3, 4, 4))
convolution("kernel_larger_than_src", (2, 2, 3), 3, (5, 5), padding=(2, 2, 2, 2))
convolution("even_kernel", (3, 6, 7), 4, (2, 2), padding=(1, 1, 1, 1))
convolution("rectangular", (3, 9, 8), 4, (5, 2), stride=(2, 3), padding=(2, 1, 2, 1))
convolution("asymmetrical_padding", (3, 7, 6), 4, padding=(0, 1, 2, 0), stride=(2, 1))
convolution("one_dimensional", (4, 1, 15), 5, (1, 5), padding=(0, 2, 0, 2), activation="relu")
convolution("dilation", (3, 9, 8), 4, dilation=(2, 2), padding=(2, 2, 2, 2))
convolution("dilation_uneven", (3, 10, 11), 4, dilation=(3, 2), padding=(3, 2, 1, 0))
convolution("groups", (6, 5, 7), 4, groups=2, activation="leaky", **SAME)
convolution("groups_1x1", (6, 5, 7), 9, (1, 1), groups=3)
convolution("groups_stride_2", (8, 7, 7), 8, groups=4, stride=(2, 2), **SAME)
convolution("depthwise", (7, 6, 9), 7, groups=7, activation="relu6", **SAME)
convolution("depthwise_stride_2", (7, 7, 9), 7, groups=7, stride=(2, 2), **SAME)
convolution("depthwise_5x5", (9, 7, 6), 9, (5, 5), groups=9, padding=(2, 2, 2, 2))
convolution("depthwise_8", (8, 5, 6), 8, groups=8, activation="leaky", **SAME)
convolution("depthwise_of_packs_7", (8, 9, 8), 8, (7, 7), groups=8, padding=(3, 3, 3, 3))
for _size, _stride in [(3, 1), (3, 2), (5, 1), (5, 2)]:
    for _name, _sides, _options in (
        ("of_packs", (16, 7, 9), {"activation": "swish", "residual": _stride == 1}),
        (
            "of_many",
            (40, 24, 44),
            {"activation": "relu6", "residual": _stride == 1, "last_activation": "leaky"},
        ),
        ("tall", (48, 30, 27), {"activation": "swish"}),
    ):
        convolution(
            f"depthwise_{_name}_{_size}_{_stride}",
            _sides,
            _sides[0],
            (_size, _size),
            groups=_sides[0],
            stride=(_stride, _stride),
            padding=(_size // 2,) * 4,
            **_options,
        )
convolution(
    *("depthwise_in_wide_borders", (16, 6, 5), 16),
    groups=16,
    padding=(9, 7, 8, 11),
    activation="leaky",
)
convolution(
    *("depthwise_in_wide_borders_5_2", (16, 6, 5), 16, (5, 5)),
    groups=16,
    stride=(2, 2),
    padding=(9, 7, 8, 11),
    activation="relu",
)
convolution(
    *("depthwise_without_borders", (64, 29, 9), 64, (5, 5)),
    groups=64,
    padding=(0, 1, 0, 0),
    activation="relu6",
    residual=True,
)
convolution("depthwise_twice_the_filters", (5, 6, 6), 10, groups=5, **SAME)
convolution("signed", (3, 6, 5), 4, signed=True, **SAME)
convolution("signed_many_channels", (35, 5, 4), 3, signed=True, activation="leaky", **SAME)
convolution("signed_stride_2_leaky", (3, 7, 5), 4, signed=True, stride=(2, 2), activation="leaky")
convolution("pool", (3, 8, 10), 4, pool=HALVE, activation="leaky", **SAME)
convolution("pool_odd", (3, 7, 9), 4, pool=Window((2, 2), (2, 2), (0, 0, 1, 1)), **SAME)
convolution("pool_that_overlaps", (3, 7, 9), 4, pool=Window((3, 3), (2, 2), (1, 1, 1, 1)), **SAME)
convolution("pool_mish", (3, 8, 6), 4, pool=HALVE, activation="mish", **SAME)
convolution("pool_1x1", (5, 6, 8), 4, (1, 1), pool=HALVE, activation="leaky")
convolution("residual", (4, 6, 5), 4, residual=True, activation="leaky", **SAME)
convolution("residual_8", (8, 4, 5), 8, residual=True, last_activation="leaky", **SAME)
convolution("residual_1x1", (4, 6, 5), 6, (1, 1), residual=True, last_activation="relu")
convolution(
    "residual_pool", (4, 6, 8), 6, residual=True, pool=HALVE, last_activation="leaky", **SAME
)
convolution(
    "residual_depthwise", (5, 6, 5), 5, groups=5, residual=True, last_activation="swish", **SAME
)
convolution("upsampled", (8, 5, 7), 16, (1, 1), upsample=2, activation="leaky")
convolution("upsampled_thrice", (5, 4, 3), 6, upsample=3, **SAME)
convolution("yolo", (9, 5, 7), 24, (1, 1), yolo={"anchors": 3, "classes": 3})
convolution(
    *("yolo_sigmas", (8, 4, 5), 20, (1, 1)),
    yolo={"anchors": 2, "classes": 1, "box": 8, "scale_x_y": 1.2},
)
convolution("yolo_raw", (8, 4, 5), 12, yolo={"anchors": 2, "classes": 1, "raw": True}, **SAME)
convolution("last_activation_alone", (3, 5, 5), 4, activation="relu", last_activation="tanh")


def chain(
    name: str,
    src: tuple[int, int, int],
    *,
    before: int = 0,
    after: int = 0,
    size: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    activation: str = "leaky",
    residual: bool = False,
) -> None:
    """Add a chain: 1 x 1 with `before` filters, depthwise, 1 x 1 with `after` filters.

    Zero filters omit a 1 x 1 convolution.
    """
    links: list[ops.Conv2d] = []
    constants: dict[str, Array] = {}

    def link(source: Tensor, sums: Tensor, *shape: int, **options: Any) -> Tensor:
        number = len(links)
        weight, constants[f"weight{number}"] = random_constant(f"weight{number}", *shape)
        bias, constants[f"bias{number}"] = random_constant(f"bias{number}", shape[0])
        links.append(conv2d(sums, source, weight, bias, **options))
        return links[-1].out

    last = tensor(*src)
    if before:
        wide = tensor(before, *src[1:])
        last = link(last, wide, before, src[0], 1, 1, activation=activation)
    covered = [step * (extent - 1) + 1 for step, extent in zip(dilation, size, strict=True)]
    channels, height, width = last.shape.sides
    deep = tensor(
        channels,
        window_count(height, covered[0], stride[0], padding[0] + padding[2]),
        window_count(width, covered[1], stride[1], padding[1] + padding[3]),
    )
    options: dict[str, Any] = {"stride": stride, "dilation": dilation, "padding": padding}
    options |= {"groups": channels, "activation": activation}
    last = link(last, deep, channels, 1, *size, residual=residual and not after, **options)
    if after:
        made = tensor(after, *deep.shape.sides[1:])
        link(last, made, after, channels, 1, 1, residual=residual)
    add_case(name, ops.Chain(links[-1].out, tuple(links)), **constants)


chain("bottleneck", (4, 7, 6), before=12, after=4, residual=True)
chain("expansion", (3, 5, 8), before=9)
chain("expansion_residual", (3, 5, 8), before=9, residual=True, activation="mish")
chain("projection", (10, 6, 5), after=7, activation="relu6")
chain("projection_to_more", (5, 6, 5), after=40, activation="swish")
chain("stride_2", (4, 8, 10), before=11, after=5, stride=(2, 2))
chain("stride_2_odd", (4, 9, 7), before=11, after=5, stride=(2, 2))
chain("stride_3_and_2", (4, 9, 11), before=7, after=5, stride=(3, 2), padding=(1, 0, 0, 2))
chain("stride_1_and_3", (4, 6, 10), before=7, after=5, stride=(1, 3))
chain("5x5", (4, 8, 7), before=6, after=3, size=(5, 5), padding=(2, 2, 2, 2))
chain("dilated", (4, 9, 10), before=6, after=3, dilation=(2, 3), padding=(2, 3, 2, 3))
chain("dilated_stride_2", (4, 9, 12), before=6, dilation=(1, 3), stride=(1, 2), padding=(1,) * 4)
chain("without_padding", (4, 7, 8), before=6, after=3, padding=(0, 0, 0, 0))
chain("padding_wider_than_the_map", (3, 2, 2), before=5, after=4, padding=(4, 5, 4, 5))
chain("one_cell", (6, 1, 1), before=8, after=6, residual=True)
chain("columns_no_window_reads", (3, 5, 8), before=5, after=3, size=(3, 1), stride=(1, 3))
chain("a_border_that_is_not_zero", (4, 5, 5), before=6, after=4, activation="logistic")

for name, src, (filters, size, stride, padding), has_bias in [
    ("doubles", (3, 4, 5), (2, 4, 2, 1), True),
    ("stride_1", (2, 5, 3), (3, 3, 1, 1), True),
    ("gaps", (2, 3, 4), (2, 2, 3, 0), False),
    ("stride_3", (3, 4, 3), (2, 5, 3, 2), True),
]:
    weight, weights = random_constant("weight", src[0], filters, size, size)
    bias, biases = random_constant("bias", filters)
    height, width = ((side - 1) * stride + size - 2 * padding for side in src[1:])
    op: ops.Op = ops.Deconv2d(
        tensor(filters, height, width),
        tensor(*src),
        weight,
        bias if has_bias else None,
        stride=stride,
        padding=padding,
    )
    add_case(name, op, weight=weights, bias=biases)

for name, src, (filters, size, stride, padding) in [
    ("3x3_padded", (3, 5, 6), (4, 3, 1, 1)),
    ("no_padding", (2, 7, 6), (3, 3, 2, 0)),
    ("stride_2", (3, 7, 7), (2, 3, 2, 1)),
    ("size_1", (4, 3, 2), (3, 1, 1, 0)),
]:
    height, width = ((side + 2 * padding - size) // stride + 1 for side in src[1:])
    weight, weights = random_constant("weight", height * width, filters, src[0] * size * size)
    bias, biases = random_constant("bias", filters * height * width)
    op = ops.LocalConv2d(
        tensor(filters, height, width),
        tensor(*src),
        weight,
        bias,
        size=size,
        stride=stride,
        padding=padding,
    )
    add_case(name, op, weight=weights, bias=biases)

for name, shape, outputs, activation in [
    ("flat", (9, 1, 1), 5, "linear"),
    ("map", (3, 4, 5), 7, "leaky"),
    ("one", (2, 3, 1), 1, "logistic"),
]:
    weight, weights = random_constant("weight", outputs, Shape(*shape).size)
    bias, biases = random_constant("bias", outputs)
    out, src_tensor = tensor(outputs), tensor(*shape)
    op = ops.MatMul(out, src_tensor, weight, bias, activation)
    add_case(name, op, weight=weights, bias=biases)
    op = ops.MatMul(out, src_tensor, weight, activation=activation)
    add_case(f"{name}_without_bias", op, weight=weights)

for name, shape, hidden, outputs, kinds in [
    ("few", (5, 3, 4), 2, 5, ("swish", "logistic")),
    ("packs", (16, 9, 8), 4, 24, ("relu", "logistic")),
    ("many_channels", (200, 2, 3), 33, 170, ("leaky", "linear")),
    ("one_cell", (9,), 3, 9, ("linear", "mish")),
    ("many_of_all", (1100, 2, 1), 70, 600, ("swish", "relu")),
    ("large_map", (72, 40, 36), 4, 72, ("relu6", "logistic")),
]:
    squeeze, squeezes = random_constant("squeeze", hidden, shape[0], 1, 1)
    squeeze_bias, squeeze_biases = random_constant("squeeze_bias", hidden)
    expand, expands = random_constant("expand", outputs, hidden, 1, 1)
    expand_bias, expand_biases = random_constant("expand_bias", outputs)
    out, src_tensor = tensor(outputs), tensor(*shape)
    add_case(
        name,
        ops.Gate(out, src_tensor, squeeze, squeeze_bias, kinds[0], expand, expand_bias, kinds[1]),
        squeeze=squeezes / shape[0],  # a mean of values near 1
        squeeze_bias=squeeze_biases,
        expand=expands,
        expand_bias=expand_biases,
    )
    add_case(
        f"{name}_without_biases",
        ops.Gate(out, src_tensor, squeeze, None, kinds[0], expand, None, kinds[1]),
        squeeze=squeezes / shape[0],  # a mean of values near 1
        expand=expands,
    )

# ---------------------------------------------------------------- value by value

_mean, _means = random_constant("mean", 5)
_scale, _scales = random_constant("scale", 5)
_bias, _biases = random_constant("bias", 5)
_variance = Constant("variance", (5,))
for name, variances in [
    ("usual", [0.5, 1, 2, 3, 4]),
    ("no_variance", [0, 0, 1e-8, 1, 1]),
    ("below_zero", [-1e-12, -1e-40, 1, 1, 1]),
]:
    add_case(
        name,
        ops.Normalise(tensor(5, 3, 4), tensor(5, 3, 4), _mean, _variance, _scale, _bias),
        mean=_means,
        variance=np.array(variances, "f4"),
        scale=_scales,
        bias=_biases,
    )

for name in ACTIVATIONS:
    add_case(name, ops.Activate(tensor(3, 5, 7), tensor(3, 5, 7), name), wide)

add_case("packs", ops.Activate(tensor(8, 3, 5), tensor(8, 3, 5), "swish"), wide)
for name in ("mish", "logistic"):
    add_case(f"packs_{name}", ops.Activate(tensor(8, 3, 5), tensor(8, 3, 5), name), wide)
# large enough for a GPU to store it in tiles
add_case("large_map", ops.Activate(tensor(41, 41, 41), tensor(41, 41, 41), "relu"))

for name, shapes, weight_shape, activation in [
    ("two", [(4, 3, 5)] * 2, None, "linear"),
    ("two_packs", [(16, 3, 2)] * 2, None, "leaky"),
    ("three_leaky", [(4, 3, 5)] * 3, None, "leaky"),
    ("fewer_channels", [(5, 3, 2), (3, 3, 2)], None, "linear"),
    ("more_channels", [(3, 3, 2), (5, 3, 2)], None, "relu"),
    ("other_sides", [(4, 4, 4), (6, 2, 3)], None, "linear"),
    ("quarters", [(16, 2, 3), (16, 4, 6)], None, "leaky"),
    ("quarters_of_few", [(64, 2, 3), (8, 4, 6)], None, "linear"),
    ("larger_sides", [(3, 2, 2), (2, 5, 3), (3, 2, 2)], None, "linear"),
    ("weight_each", [(4, 3, 2)] * 3, (3, 1), "linear"),
    ("weight_channels", [(4, 3, 2)] * 3, (3, 4), "mish"),
    ("weight_channels_other_sides", [(4, 3, 2), (3, 5, 2)], (2, 4), "linear"),
]:
    sources = tuple(tensor(*shape) for shape in shapes)
    out = tensor(*shapes[0])
    if weight_shape is None:
        add_case(name, ops.Add(out, sources, activation=activation))
    else:
        weight, weights = random_constant("weights", *weight_shape)
        add_case(name, ops.Add(out, sources, weight, activation), weights=weights)

_twice = tensor(3, 2, 2)
add_case("with_itself", ops.Add(tensor(3, 2, 2), (_twice, _twice)))

for name, factor, activation in [
    ("whole", (4, 3, 5), "linear"),
    ("channels", (4, 1, 1), "leaky"),
    ("pixels", (1, 3, 5), "logistic"),
]:
    add_case(name, ops.Multiply(tensor(4, 3, 5), tensor(4, 3, 5), tensor(*factor), activation))

add_case("map", ops.Mix(tensor(3, 4, 5), tensor(3, 4, 5), tensor(3, 4, 5), tensor(3, 4, 5)))
add_case("flat", ops.Mix(tensor(9), tensor(9), tensor(9), tensor(9)))
add_case("half", ops.Clip(tensor(3, 4, 5), tensor(3, 4, 5), 0.5))
add_case("wide", ops.Clip(tensor(7), tensor(7), 20), wide)
add_case("map", ops.Repair(tensor(3, 4, 5), tensor(3, 4, 5)), broken)
add_case("nothing_to_do", ops.Repair(tensor(3, 4, 5), tensor(3, 4, 5)))

# ---------------------------------------------------------------- across channels

add_case("positive", ops.NormaliseChannels(tensor(5, 3, 4), tensor(5, 3, 4), "positive"))
add_case("softmax", ops.NormaliseChannels(tensor(5, 3, 4), tensor(5, 3, 4), "softmax"))
add_case(
    "softmax_max", ops.NormaliseChannels(tensor(5, 3, 4), tensor(5, 3, 4), "softmax_max"), wide
)
add_case("map", ops.L2Norm(tensor(5, 3, 4), tensor(5, 3, 4)))
add_case("one_channel", ops.L2Norm(tensor(1, 3, 4), tensor(1, 3, 4)))
for name, channels, size in [
    ("size_5", 9, 5),
    ("size_4", 9, 4),
    ("size_1", 4, 1),
    ("wider_than_channels", 3, 9),
    ("twice_as_wide", 4, 8),
]:
    shape = (channels, 2, 3)
    op = ops.LocalNorm(tensor(*shape), tensor(*shape), size, alpha=0.01, beta=0.75, kappa=1.5)
    add_case(name, op)

for name, shape, runs, temperature in [
    ("whole", (10, 1, 1), (10,), 1.0),
    ("warm", (10, 1, 1), (10,), 2.5),
    ("groups", (12, 1, 1), (4,), 1.0),
    ("map", (3, 2, 4), (24,), 1.0),
    ("map_in_groups", (4, 3, 2), (6,), 0.5),
    ("tree", (14, 1, 1), (2, 4, 1), 1.0),
    ("long", (1100, 1, 1), (1100,), 1.0),
]:
    add_case(name, ops.Softmax(tensor(*shape), tensor(*shape), runs, temperature), wide)

# ---------------------------------------------------------------- windows

WINDOWS = [
    ("2x2_stride_2", (3, 6, 8), Window((2, 2), (2, 2))),
    ("2x2_odd", (3, 7, 5), Window((2, 2), (2, 2), (0, 0, 1, 1))),
    ("2x2_stride_1", (3, 5, 4), Window((2, 2), (1, 1), (0, 0, 1, 1))),
    ("3x3_stride_2", (3, 7, 8), Window((3, 3), (2, 2), (1, 1, 1, 1))),
    ("3x3_stride_1", (5, 4, 5), Window((3, 3), (1, 1), (1, 1, 1, 1))),
    ("5x5_stride_1", (5, 7, 7), Window((5, 5), (1, 1), (2, 2, 2, 2))),
    ("9x9_larger_than_src", (2, 5, 4), Window((9, 9), (1, 1), (4, 4, 4, 4))),
    ("13x13_stride_1", (2, 13, 11), Window((13, 13), (1, 1), (6, 6, 6, 6))),
    ("rectangular", (2, 7, 9), Window((2, 3), (2, 1), (0, 1, 1, 1))),
    ("size_1_stride_2", (2, 5, 6), Window((1, 1), (2, 2))),
    ("one_dimensional", (3, 1, 9), Window((1, 3), (1, 2), (0, 1, 0, 1))),
    ("asymmetrical", (2, 5, 6), Window((4, 4), (2, 2), (2, 1, 1, 2))),
    ("whole", (5, 4, 3), Window((4, 3))),
]


def pooled(src: tuple[int, int, int], window: Window) -> Tensor:
    top, left, bottom, right = window.padding
    height = window_count(src[1], window.size[0], window.stride[0], top + bottom)
    width = window_count(src[2], window.size[1], window.stride[1], left + right)
    return tensor(src[0], height, width)


for name, shape, window in WINDOWS:
    add_case(name, ops.MaxPool(pooled(shape, window), tensor(*shape), window))
    add_case(name, ops.AveragePool(pooled(shape, window), tensor(*shape), window))
for window in [Window((2, 2), (2, 2)), Window((3, 3), (1, 1), (1, 1, 1, 1))]:
    add_case(
        f"packs_{window.size[0]}", ops.MaxPool(pooled((8, 6, 8), window), tensor(8, 6, 8), window)
    )
for name, sides in {"large_whole": (9, 15), "whole_in_parts": (25, 41)}.items():
    for suffix, channels in {"": 5, "_of_packs": 40}.items():
        whole = ops.AveragePool(tensor(channels), tensor(channels, *sides), Window(sides))
        add_case(name + suffix, whole)
_outside = Window((2, 2), (2, 2), (2, 0, 2, 3))
add_case("empty_windows", ops.MaxPool(pooled((2, 4, 5), _outside), tensor(2, 4, 5), _outside))
add_case("divides", ops.MaxPoolDepth(tensor(2, 3, 4), tensor(6, 3, 4)))
add_case("leaves_a_rest", ops.MaxPoolDepth(tensor(3, 3, 4), tensor(7, 3, 4)))
add_case("one", ops.MaxPoolDepth(tensor(1, 3, 4), tensor(5, 3, 4)))

# ---------------------------------------------------------------- moving values

_five, _three = tensor(5, 3, 4), tensor(3, 3, 4)
add_case(
    "two",
    ops.Concat(tensor(8, 3, 4), (ConcatPart(_five, 0, 5, at=0), ConcatPart(_three, 0, 3, at=5))),
)
add_case("half", ops.Concat(tensor(2, 3, 4), (ConcatPart(_five, 3, 2, at=0),)))
add_case(
    "parts_of_each",
    ops.Concat(tensor(3, 3, 4), (ConcatPart(_five, 2, 2, at=0), ConcatPart(_three, 1, 1, at=2))),
)
add_case(
    "same_source_twice",
    ops.Concat(tensor(8, 3, 4), (ConcatPart(_five, 1, 4, at=4), ConcatPart(_five, 0, 4, at=0))),
)
_eight, _sixteen = tensor(8, 3, 4), tensor(16, 3, 4)
add_case(
    "packs",
    ops.Concat(
        tensor(16, 3, 4), (ConcatPart(_sixteen, 8, 8, at=0), ConcatPart(_eight, 0, 8, at=8))
    ),
)
add_case("to_flat", ops.Reshape(tensor(60), tensor(5, 3, 4)))
add_case("from_flat", ops.Reshape(tensor(5, 3, 4), tensor(60)))
add_case("other_sides", ops.Reshape(tensor(6, 2, 5), tensor(5, 3, 4)))
add_case("2", ops.Upsample(tensor(3, 6, 8), tensor(3, 3, 4), 2))
add_case("2_packs", ops.Upsample(tensor(8, 6, 8), tensor(8, 3, 4), 2, scale=0.5))
add_case("3_scaled", ops.Upsample(tensor(2, 6, 9), tensor(2, 2, 3), 3, scale=0.3))
add_case("2", ops.BlockSum(tensor(3, 2, 3), tensor(3, 4, 6), 2))
add_case("2_leaves_a_rest", ops.BlockSum(tensor(3, 2, 3), tensor(3, 5, 7), 2))
add_case("3_scaled", ops.BlockSum(tensor(2, 2, 1), tensor(2, 6, 3), 3, scale=0.25))
for stride, (channels, height, width) in [(2, (8, 3, 5)), (2, (64, 4, 6)), (3, (18, 2, 3))]:
    smaller = (channels, height, width)
    larger = (channels // stride**2, height * stride, width * stride)
    grid = Shape(*smaller)
    name = f"{stride}_of_{channels}"
    add_case(name, ops.Reorg(tensor(*smaller), tensor(*larger), stride, grid))
    op = ops.Reorg(tensor(*larger), tensor(*smaller), stride, grid, reverse=True)
    add_case(f"{name}_reverse", op)
# yolov2: the grid is that of the input, so values are permuted
add_case("2_scrambled", ops.Reorg(tensor(16, 2, 3), tensor(4, 4, 6), 2, Shape(4, 4, 6)))
add_case("centre", ops.Crop(tensor(3, 3, 4), tensor(3, 7, 8), 2, 2, scale=2.0, shift=-1.0))
add_case("corner", ops.Crop(tensor(2, 2, 3), tensor(2, 4, 5), 2, 0))
for step in range(3):
    op = ops.TakeStep(tensor(4, 2, 3), tensor(4, 2, 3, steps=3), step)
    add_case(f"step_{step}", op)
_steps = tuple(tensor(4, 2, 3) for _ in range(3))
add_case("three", ops.JoinSteps(tensor(4, 2, 3, steps=3), _steps))
add_case("map", ops.Store(Tensor(next(_indices), Shape(3, 2, 4), is_state=True), tensor(3, 2, 4)))

# ---------------------------------------------------------------- detection layers

for name, anchors, classes, options in [
    ("usual", 3, 4, {}),
    ("scaled", 3, 4, {"scale_x_y": 1.2}),
    ("raw", 2, 3, {"raw": True}),
    ("raw_scaled", 2, 3, {"raw": True, "scale_x_y": 2.0}),
    ("sigmas", 2, 3, {"box": 8}),
    ("sigmas_scaled", 2, 3, {"box": 8, "scale_x_y": 1.1}),
    ("one_class", 1, 1, {}),
]:
    shape = (anchors * (options.get("box", 4) + 1 + classes), 3, 5)
    add_case(
        name, ops.YoloOutput(tensor(*shape), tensor(*shape), anchors, classes, **options), wide
    )

for name, anchors, classes, options in [
    ("plain", 2, 3, {}),
    ("softmax", 2, 5, {"runs": (5,)}),
    ("tree", 3, 7, {"runs": (2, 4, 1)}),
    ("background", 2, 3, {"background": True, "runs": (3,)}),
    ("more_coords", 2, 3, {"coords": 6}),
]:
    shape = (anchors * (options.get("coords", 4) + 1 + classes), 3, 5)
    op = ops.RegionOutput(tensor(*shape), tensor(*shape), anchors, classes, **options)
    add_case(name, op, wide)
