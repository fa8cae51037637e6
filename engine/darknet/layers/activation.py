"""[activation]: an activation as a separate layer."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import activate
from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import activation_option
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("activation")
@dataclass(frozen=True)
class Activation(Layer):
    activation: str = activation_option("linear")

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        return activate(plan, src, self.activation)
