"""Building blocks shared by several sections: dense, convolution, blur, pooling geometry.

`bind` adds a block's constants to the plan once and returns a function that emits the block's ops
at each call, so that all time steps of a recurrence share one set of constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.darknet.layers.base import Parameter, Weights
from engine.darknet.options import ACROSS_CHANNELS
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Constant, Tensor
from engine.plan.shapes import Shape, Window, window_count

BoundBlock = Callable[[Tensor], Tensor]


def activate(plan: PlanBuilder, src: Tensor, activation: str) -> Tensor:
    """Emit the named activation as a separate op; linear emits nothing."""
    if activation == "linear":
        return src
    out = plan.tensor(src.shape, steps=src.steps)
    if activation in ACROSS_CHANNELS:
        return plan.emit(ops.NormaliseChannels(out, src, ACROSS_CHANNELS[activation]))
    return plan.emit(ops.Activate(out, src, activation))


def batch_norm_parameters(
    count: int, *, prefix: str = "", in_file: bool = True
) -> tuple[Parameter, ...]:
    """Return scale, mean and variance; they are 1, 0 and 0 where the file does not hold them."""
    return (
        Parameter(f"{prefix}scale", (count,), 1.0, in_file),
        Parameter(f"{prefix}mean", (count,), 0.0, in_file),
        Parameter(f"{prefix}variance", (count,), 0.0, in_file),
    )


def fold_batch_norm(weights: Weights, *, filters: int = 0) -> Weights:
    """Fold batch normalisation into the biases and the weights.

    `filters` is the axis of the weights that counts the filters.
    """
    folded = dict(weights)
    for prefix in (name.removesuffix("mean") for name in weights if name.endswith("mean")):
        if f"{prefix}weight" in weights:
            names = [f"{prefix}{each}" for each in ("mean", "variance", "scale", "bias", "weight")]
            mean, variance, scale, bias, weight = (
                folded.pop(name).astype(np.float64) for name in names
            )
            with np.errstate(all="ignore"):  # damaged weights give infinity or NaN anyway
                factor = scale / np.sqrt(variance + 1e-5)
                along = np.ones(weight.ndim, int)
                along[filters] = -1
                weight = weight * factor.reshape(along)
                folded[f"{prefix}bias"] = (bias - mean * factor).astype(np.float32)
                folded[f"{prefix}weight"] = weight.astype(np.float32)
    return folded


def bind_batch_norm(plan: PlanBuilder, weights: Weights, *, prefix: str = "") -> BoundBlock:
    mean, variance, scale, bias = (
        plan.constant(name, weights[name])
        for name in (f"{prefix}{each}" for each in ("mean", "variance", "scale", "bias"))
    )

    def normalise(src: Tensor) -> Tensor:
        out = plan.tensor(src.shape, steps=src.steps)
        return plan.emit(ops.Normalise(out, src, mean, variance, scale, bias))

    return normalise


@dataclass(frozen=True)
class Dense:
    """A fully connected block: y = activation(batch_norm(W x) + bias)."""

    inputs: int
    outputs: int
    batch_normalize: bool = False
    activation: str = "linear"
    prefix: str = ""  # prefix of array names in layers with several blocks
    has_scales_in_file: bool = True

    def parameters(self) -> tuple[Parameter, ...]:
        count, prefix = self.outputs, self.prefix
        weight = Parameter(f"{prefix}weight", (count, self.inputs), stored="flipped_if_header_says")
        bias = Parameter(f"{prefix}bias", (count,))
        if not self.batch_normalize:
            return bias, weight
        return (
            bias,
            weight,
            *batch_norm_parameters(count, prefix=prefix, in_file=self.has_scales_in_file),
        )

    def bind(self, plan: PlanBuilder, weights: Weights) -> BoundBlock:
        prefix = self.prefix
        weight = plan.constant(f"{prefix}weight", weights[f"{prefix}weight"])
        normalise, bias = bind_bias(plan, weights, prefix, has_batch_norm=self.batch_normalize)

        def dense(src: Tensor) -> Tensor:
            out = plan.tensor(Shape(self.outputs), steps=src.steps)
            out = plan.emit(ops.MatMul(out, src, weight, bias))
            return activate(plan, normalise(out), self.activation)

        return dense


@dataclass(frozen=True)
class Convolution:
    """A convolution block: convolution, batch normalisation or bias, activation."""

    channels: int
    filters: int
    size: int = 1
    stride: tuple[int, int] = (1, 1)  # vertical, horizontal
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    batch_normalize: bool = False
    activation: str = "linear"
    prefix: str = ""
    has_scales_in_file: bool = True
    is_flipped: bool = False  # the file holds the weights as (channels * size * size, filters)
    is_signed: bool = False  # binarises its input to signs

    def infer(self, shape: Shape) -> Shape:
        """Return the output shape by darknet's formula, which ignores the dilation."""
        padding = 2 * self.padding
        height = window_count(shape.height, self.size, self.stride[0], padding)
        width = window_count(shape.width, self.size, self.stride[1], padding)
        return Shape(self.filters, height, width)

    def padded(self, shape: Shape) -> Shape:
        border = 2 * self.padding * self.dilation
        return Shape(shape.channels, shape.height + border, shape.width + border)

    def parameters(self) -> tuple[Parameter, ...]:
        count, prefix = self.filters, self.prefix
        bias = Parameter(f"{prefix}bias", (count,))
        weight = Parameter(
            f"{prefix}weight",
            (count, self.channels // self.groups, self.size, self.size),
            stored="flipped" if self.is_flipped else "plain",
        )
        if not self.batch_normalize:
            return bias, weight
        return (
            bias,
            *batch_norm_parameters(count, prefix=prefix, in_file=self.has_scales_in_file),
            weight,
        )

    def operations(self, out: Shape) -> int:
        return 2 * out.size * (self.channels // self.groups) * self.size * self.size

    def bind(self, plan: PlanBuilder, weights: Weights) -> BoundBlock:
        prefix = self.prefix
        weight = plan.constant(f"{prefix}weight", weights[f"{prefix}weight"])
        # a layer with shared weights has batch norm if and only if its donor does
        has_batch_norm = f"{prefix}mean" in weights
        normalise, bias = bind_bias(plan, weights, prefix, has_batch_norm=has_batch_norm)
        padding = self.padding * self.dilation

        def convolve(src: Tensor) -> Tensor:
            conv = ops.Conv2d(
                plan.tensor(self.infer(src.shape), steps=src.steps),
                src,
                weight,
                bias,
                stride=_clamp_stride(self.stride, self.padded(src.shape)),
                padding=(padding,) * 4,
                dilation=(self.dilation,) * 2,
                groups=self.groups,
                signed=self.is_signed,
            )
            return activate(plan, normalise(plan.emit(conv)), self.activation)

        return convolve


def bind_bias(
    plan: PlanBuilder, weights: Weights, prefix: str, *, has_batch_norm: bool
) -> tuple[BoundBlock, Constant | None]:
    """Return a batch norm block, which includes the bias, or the identity and the bias."""
    if has_batch_norm:
        return bind_batch_norm(plan, weights, prefix=prefix), None
    return (lambda src: src), plan.constant(f"{prefix}bias", weights[f"{prefix}bias"])


def _clamp_stride(stride: tuple[int, int], shape: Shape, *, border: int = 0) -> tuple[int, int]:
    """Limit the stride to the size of the map: any longer stride gives the same single window."""
    return min(stride[0], shape.height + border), min(stride[1], shape.width + border)


@dataclass(frozen=True)
class Blur:
    """The option antialiasing: a blur of each channel that takes over the layer's stride."""

    kind: int  # darknet: 2 is the mean of 2 x 2, any other value is [1 2 1] x [1 2 1] / 16
    stride: tuple[int, int]

    @property
    def kernel(self) -> tuple[int, int]:
        """Return the size and the padding of the kernel."""
        return (2, 0) if self.kind == 2 else (3, 1)

    def infer(self, shape: Shape) -> Shape:
        size, padding = self.kernel
        height = window_count(shape.height, size, self.stride[0], 2 * padding)
        width = window_count(shape.width, size, self.stride[1], 2 * padding)
        return Shape(shape.channels, height, width)

    def lower(self, plan: PlanBuilder, src: Tensor) -> Tensor:
        size, padding = self.kernel
        taps = np.array([1, 1] if size == 2 else [1, 2, 1], np.float32)
        window = np.outer(taps, taps) / taps.sum() ** 2
        channels = src.shape.channels
        weight = plan.constant("blur", np.tile(window, (channels, 1, 1, 1)))
        return plan.emit(
            ops.Conv2d(
                plan.tensor(self.infer(src.shape), steps=src.steps),
                src,
                weight,
                stride=_clamp_stride(self.stride, src.shape, border=2 * padding),
                padding=(padding,) * 4,
                groups=channels,
            )
        )


@dataclass(frozen=True)
class PoolGeometry:
    """The geometry of pooling windows; pairs are vertical, horizontal."""

    size: int
    stride: tuple[int, int]
    padding: int  # the total of both sides, half of it before the map

    @classmethod
    def from_options(cls, size: int, stride: tuple[int, int], padding: int | None) -> PoolGeometry:
        """Apply darknet's default padding, size - 1."""
        return cls(size, stride, size - 1 if padding is None else padding)

    def infer(self, shape: Shape) -> Shape:
        height = window_count(shape.height, self.size, self.stride[0], self.padding)
        width = window_count(shape.width, self.size, self.stride[1], self.padding)
        return Shape(shape.channels, height, width)

    def padded(self, shape: Shape) -> Shape:
        """Return the map with its padding, extended to one window if that is larger."""
        added = max(self.padding, self.size)
        return Shape(shape.channels, shape.height + added, shape.width + added)

    def window(self, shape: Shape) -> Window:
        out = self.infer(shape)
        before = self.padding // 2
        # the window count rounds towards zero, so a window wider than the map exceeds the padding
        bottom, right = (
            max(self.padding - before, (count - 1) * stride + self.size - before - extent)
            for count, stride, extent in (
                (out.height, self.stride[0], shape.height),
                (out.width, self.stride[1], shape.width),
            )
        )
        return Window((self.size,) * 2, self.stride, (before, before, bottom, right))
