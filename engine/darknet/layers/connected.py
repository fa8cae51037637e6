"""[connected]: a fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import Dense
from engine.darknet.layers.base import Layer, Parameter, Weights, layer
from engine.darknet.options import activation_option, option
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("connected", "conn")
@dataclass(frozen=True)
class Connected(Layer):
    output: int = option(1, at_least=1)
    batch_normalize: bool = False
    activation: str = activation_option("logistic")

    def infer(self, *shapes: Shape) -> Shape:
        return Shape(self.output)

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        return self._dense(*shapes).parameters()

    def operations(self, out: Shape, *shapes: Shape) -> int:
        (shape,) = shapes
        return 2 * shape.size * out.size

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        return self._dense(src.shape).bind(plan, weights)(src)

    def _dense(self, shape: Shape) -> Dense:
        return Dense(
            shape.size,
            self.output,
            self.batch_normalize,
            self.activation,
            has_scales_in_file=not self.dontloadscales,
        )
