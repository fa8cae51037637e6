"""[batchnorm]: batch normalisation as a separate layer."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import batch_norm_parameters, bind_batch_norm
from engine.darknet.layers.base import Layer, Parameter, Weights, layer
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
        return Parameter("bias", (shape.channels,)), *batch_norm_parameters(shape.channels)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        return bind_batch_norm(plan, weights)(src)
