"""[normalization]: local response normalisation across channels (AlexNet's LRN)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("normalization", "lrn")
@dataclass(frozen=True)
class Normalization(Layer):
    alpha: float = option(0.0001)
    beta: float = option(0.75)
    kappa: float = option(1.0)
    size: int = option(5, at_least=1)

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if self.size // 2 > shape.channels:
            raise self.error(
                "size", f"{self.size} is too wide for the {shape.channels} channels before it"
            )
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        out = plan.tensor(src.shape)
        return plan.emit(ops.LocalNorm(out, src, self.size, self.alpha, self.beta, self.kappa))
