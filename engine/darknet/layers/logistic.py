"""[logistic]: the logistic function (sigmoid) of every value."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import activate
from engine.darknet.layers.base import Layer, Weights, layer
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("logistic")
@dataclass(frozen=True)
class Logistic(Layer):
    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        return activate(plan, src, "logistic")
