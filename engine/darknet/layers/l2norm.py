"""[l2norm]: divide the channels of each pixel by their L2 norm."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("l2norm")
@dataclass(frozen=True)
class L2Norm(Layer):
    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        return plan.emit(ops.L2Norm(plan.tensor(src.shape), src))
