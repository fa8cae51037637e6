"""[crop]: a centre crop that also maps 0 .. 1 to -1 .. 1, unless noadjust=1."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Weights, layer
from engine.darknet.options import option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("crop", training="flip angle saturation exposure shift")
@dataclass(frozen=True)
class Crop(Layer):
    crop_width: int = option(1, at_least=1)
    crop_height: int = option(1, at_least=1)
    noadjust: bool = False

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        for key, wanted, available in (
            ("crop_width", self.crop_width, shape.width),
            ("crop_height", self.crop_height, shape.height),
        ):
            if wanted > available:
                raise self.error(key, f"expected at most {available}, got {wanted}")
        return Shape(shape.channels, self.crop_height, self.crop_width)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        out = plan.tensor(self.infer(src.shape))
        top = (src.shape.height - self.crop_height) // 2
        left = (src.shape.width - self.crop_width) // 2
        scale, shift = (1.0, 0.0) if self.noadjust else (2.0, -1.0)
        return plan.emit(ops.Crop(out, src, top, left, scale, shift))
