"""[deconvolutional]: transposed convolution, batch normalisation or bias, activation."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import activate, batch_norm_parameters, bind_bias
from engine.darknet.layers.base import Layer, Parameter, Weights, layer
from engine.darknet.options import activation_option, option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("deconvolutional", "deconv")
@dataclass(frozen=True)
class Deconvolutional(Layer):
    filters: int = option(1, at_least=1)
    size: int = option(1, at_least=1)
    stride: int = option(1, at_least=1)
    pad: bool = False  # crop size / 2 cells on each side and ignore `padding`
    padding: int = option(0, at_least=0)
    batch_normalize: bool = False
    activation: str = activation_option("logistic")

    needs_map = True
    filter_axis = 1

    @property
    def _padding(self) -> int:
        return self.size // 2 if self.pad else self.padding

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        extra = self.size - self.stride - 2 * self._padding
        height, width = (side * self.stride + extra for side in (shape.height, shape.width))
        return Shape(self.filters, height, width)

    def padded(self, *shapes: Shape) -> Shape:
        """Return the shape of the output before its borders are cropped."""
        out, cut = self.infer(*shapes), 2 * self._padding
        return Shape(out.channels, out.height + cut, out.width + cut)

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        (shape,) = shapes
        bias = Parameter("bias", (self.filters,))
        weight = Parameter("weight", (shape.channels, self.filters, self.size, self.size))
        if not self.batch_normalize:
            return bias, weight
        return bias, *batch_norm_parameters(self.filters, in_file=not self.dontloadscales), weight

    def operations(self, out: Shape, *shapes: Shape) -> int:
        (shape,) = shapes
        return 2 * shape.size * self.filters * self.size * self.size

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        weight = plan.constant("weight", weights["weight"])
        normalise, bias = bind_bias(plan, weights, "", has_batch_norm=self.batch_normalize)
        out = ops.Deconv2d(
            plan.tensor(self.infer(src.shape)),
            src,
            weight,
            bias,
            stride=self.stride,
            padding=self._padding,
        )
        return activate(plan, normalise(plan.emit(out)), self.activation)
