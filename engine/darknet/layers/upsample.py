"""[upsample]: repeat each cell; with a negative stride, sum each block of cells instead."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("upsample")
@dataclass(frozen=True)
class Upsample(Layer):
    stride: int = option(2)
    scale: float = option(1.0)

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if self.stride == 0:
            raise self.error("stride", "expected a number other than 0")
        if self.stride > 0:
            return Shape(shape.channels, shape.height * self.stride, shape.width * self.stride)
        block = -self.stride
        if shape.height % block or shape.width % block:
            raise self.error(
                "stride", f"expected a divisor of {shape.width} and {shape.height}, got {block}"
            )
        return Shape(shape.channels, shape.height // block, shape.width // block)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        out = plan.tensor(self.infer(src.shape))
        op = ops.Upsample if self.stride > 0 else ops.BlockSum
        return plan.emit(op(out, src, abs(self.stride), self.scale))
