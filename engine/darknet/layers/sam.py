"""[sam]: spatial attention: multiply an earlier map by the previous layer, element by element."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import activate
from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import activation_option, option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("sam")
@dataclass(frozen=True)
class Sam(Layer):
    from_layer: int = option(key="from")
    activation: str = activation_option("linear")

    def sources(self) -> tuple[int, ...]:
        return self.absolute("from", self.from_layer), self.context.index - 1

    def infer(self, *shapes: Shape) -> Shape:
        shape, factor = shapes
        if factor != shape:
            raise self.error("", f"expected a map of {shape} from the layer before, got {factor}")
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        src, factor = tensors
        out = plan.emit(ops.Multiply(plan.tensor(src.shape), src, factor))
        return activate(plan, out, self.activation)
