"""[local]: a locally connected layer: a convolution with separate weights at every cell."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import activate
from engine.darknet.layers.base import Layer, Parameter, Weights, layer
from engine.darknet.options import activation_option, option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape, window_count


@layer("local")
@dataclass(frozen=True)
class Local(Layer):
    filters: int = option(1, at_least=1)
    size: int = option(1, at_least=1)
    stride: int = option(1, at_least=1)
    pad: int = option(0, at_least=0)
    activation: str = activation_option("logistic")

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        # darknet treats pad as a flag for the output size, but as a number of cells in forward()
        if self.pad and 2 * self.pad + 1 != self.size:
            raise self.error("pad", f"expected 0 or (size - 1) / 2, got {self.pad}")
        if min(shape.height, shape.width) + 2 * self.pad < self.size:
            raise self.error("size", f"{self.size} is larger than the map of {shape}")
        height = window_count(shape.height, self.size, self.stride, 2 * self.pad)
        width = window_count(shape.width, self.size, self.stride, 2 * self.pad)
        return Shape(self.filters, height, width)

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        (shape,) = shapes
        out = self.infer(shape)
        weight = (out.area, self.filters, self._taps(shape))
        return Parameter("bias", (out.size,)), Parameter("weight", weight)

    def operations(self, out: Shape, *shapes: Shape) -> int:
        (shape,) = shapes
        return 2 * out.size * self._taps(shape)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        out = ops.LocalConv2d(
            plan.tensor(self.infer(src.shape)),
            src,
            plan.constant("weight", weights["weight"]),
            plan.constant("bias", weights["bias"]),
            size=self.size,
            stride=self.stride,
            padding=self.pad,
        )
        return activate(plan, plan.emit(out), self.activation)

    def _taps(self, shape: Shape) -> int:
        return shape.channels * self.size * self.size
