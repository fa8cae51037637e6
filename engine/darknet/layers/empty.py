"""[empty]: the identity."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("empty", "silence", "blank")
@dataclass(frozen=True)
class Empty(Layer):
    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        return src
