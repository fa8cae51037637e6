"""[implicit]: learned values that do not depend on the input (YOLOR)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Parameter, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("implicit", training="mean std")
@dataclass(frozen=True)
class Implicit(Layer):
    filters: int = option(128, at_least=1)
    atoms: int = option(1, at_least=1)

    def sources(self) -> tuple[int, ...]:
        return ()

    def infer(self, *shapes: Shape) -> Shape:
        return Shape(self.filters, self.atoms, 1)

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        return (Parameter("weight", self.infer().sides),)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        weight = plan.constant("weight", weights["weight"])
        return plan.emit(ops.Load(plan.tensor(self.infer()), weight))
