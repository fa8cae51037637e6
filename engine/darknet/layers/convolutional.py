"""[convolutional]: convolution, batch normalisation or bias, activation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.darknet.blocks import Blur, Convolution
from engine.darknet.layers.base import Layer, Parameter, Weights, layer
from engine.darknet.options import activation_option, option
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape

_TRAINING = """
    coordconv assisted_excitation sway rotate stretch stretch_sway deform angle grad_centr
    reverse dot stream wait_stream
"""


_ADDERS = ("shortcut", "sam", "scale_channels")


@layer("convolutional", "conv", training=_TRAINING)
@dataclass(frozen=True)
class Convolutional(Layer):
    filters: int = option(1, at_least=1)
    size: int = option(1, at_least=1)
    stride: int = option(1, at_least=1)
    stride_x: int = option(0)  # darknet uses `stride` if this is less than 1
    stride_y: int = option(0)
    pad: bool = False  # pad size / 2 cells on each side and ignore `padding`
    padding: int = option(0, at_least=0)
    dilation: int = option(1, at_least=1)
    groups: int = option(1, at_least=1)
    batch_normalize: bool = False
    cbn: bool = False
    activation: str = activation_option("logistic")
    flipped: bool = False
    binary: bool = False
    xnor: bool = False
    bin_output: bool = False
    share_index: int | None = None
    antialiasing: int = option(0)

    needs_map = True

    @property
    def donor(self) -> int | None:
        if self.share_index is None:
            return None
        return self.absolute("share_index", self.share_index)

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self._check(shape)
        grid = self._convolution(shape).infer(shape)
        return self._blur.infer(grid) if self._blur else grid

    def padded(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return self._convolution(shape).padded(shape)

    def intermediates(self, *shapes: Shape) -> tuple[Shape, ...]:
        (shape,) = shapes
        return (self._convolution(shape).infer(shape),) if self._blur else ()

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        (shape,) = shapes
        return self._convolution(shape).parameters()

    def operations(self, out: Shape, *shapes: Shape) -> int:
        (shape,) = shapes
        convolution = self._convolution(shape)
        return convolution.operations(convolution.infer(shape))

    def with_consumers(self, consumers: Sequence[Layer]) -> Layer:
        """Ignore bin_output where darknet does: if certain layers read the output.

        These are [route], and [shortcut], [sam] and [scale_channels] if they name this layer as
        their first or second source; darknet overlooks further ones of [shortcut].
        """
        index = self.context.index
        needs_activation = any(
            each.kind == "route" or (each.kind in _ADDERS and index in each.sources()[:2])
            for each in consumers
        )
        return replace(self, bin_output=False) if needs_activation else self

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        if self.binary or self.xnor:
            weights = {**weights, "weight": _binarise(weights["weight"])}
        out = self._convolution(src.shape).bind(plan, weights)(src)
        return self._blur.lower(plan, out) if self._blur else out

    def _strides(self) -> tuple[int, int]:
        return (
            self.stride_y if self.stride_y >= 1 else self.stride,
            self.stride_x if self.stride_x >= 1 else self.stride,
        )

    @property
    def _blur(self) -> Blur | None:
        return Blur(self.antialiasing, self._strides()) if self.antialiasing else None

    def _convolution(self, shape: Shape) -> Convolution:
        return Convolution(
            shape.channels,
            self.filters,
            self.size,
            (1, 1) if self.antialiasing else self._strides(),
            padding=self.size // 2 if self.pad else self.padding,
            dilation=1 if self.size == 1 else self.dilation,
            groups=1 if self.xnor else self.groups,
            batch_normalize=self.batch_normalize or self.cbn,
            activation="linear" if self.xnor and self.bin_output else self.activation,
            has_scales_in_file=not self.dontloadscales,
            is_flipped=self.flipped,
            is_signed=self.xnor,
        )

    def _check(self, shape: Shape) -> None:
        block = self._convolution(shape)
        if shape.channels % block.groups or self.filters % block.groups:
            raise self.error(
                "groups",
                f"expected a divisor of {shape.channels} channels and {self.filters} filters, "
                f"got {self.groups}",
            )
        if min(shape.height, shape.width) + 2 * block.padding < self.size:
            raise self.error(
                "size", f"{self.size} is larger than the map of {shape} with its padding"
            )
        # darknet's formula for the output size ignores dilation, so other paddings are wrong
        if block.dilation > 1 and 2 * block.padding + 1 != self.size:
            raise self.error("dilation", "expected an odd size and pad=1 with it")


def _binarise(weight: NDArray[Any]) -> NDArray[Any]:
    """Replace each filter by its signs times the mean of its absolute values."""
    mean = np.abs(weight).mean(axis=(1, 2, 3), keepdims=True, dtype=np.float64)
    return np.asarray(np.where(weight > 0, mean, -mean), np.float32)
