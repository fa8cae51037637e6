"""[batchnorm]: subtract the mean, divide by the deviation, scale and shift each channel."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Parameter, Weights, layer
from engine.darknet.parts import bind_normalise, statistics
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("batchnorm")
@dataclass(frozen=True)
class BatchNorm(Layer):
    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        (shape,) = shapes
        return Parameter("bias", (shape.channels,)), *statistics(shape.channels)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        return bind_normalise(plan, weights)(src)
