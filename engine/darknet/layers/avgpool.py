"""[avgpool]: global average pooling."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape, Window


@layer("avgpool", "avg")
@dataclass(frozen=True)
class AveragePool(Layer):
    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return Shape(shape.channels)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        window = Window((src.shape.height, src.shape.width))
        return plan.emit(ops.AveragePool(plan.tensor(self.infer(src.shape)), src, window))
