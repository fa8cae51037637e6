"""[scale_channels]: scale each channel (or each cell) of an earlier map by the previous layer."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import activate
from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import activation_option, option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("scale_channels")
@dataclass(frozen=True)
class ScaleChannels(Layer):
    from_layer: int = option(key="from")
    scale_wh: bool = False  # one factor per cell instead of per channel
    activation: str = activation_option("linear")

    def sources(self) -> tuple[int, ...]:
        return self.absolute("from", self.from_layer), self.context.index - 1

    def infer(self, *shapes: Shape) -> Shape:
        shape, factor = shapes
        expected = Shape(1, shape.height, shape.width) if self.scale_wh else Shape(shape.channels)
        if factor != expected:
            raise self.error(
                "", f"expected factors of {expected} from the layer before, got {factor}"
            )
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        src, factor = tensors
        out = plan.emit(ops.Multiply(plan.tensor(src.shape), src, factor))
        return activate(plan, out, self.activation)
